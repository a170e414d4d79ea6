------------------------------- MODULE Access -------------------------------
(* Who may write to a partition: claims, their markers, appends with and without a session, reconnections, severing.
   Protocol: "Exclusive access (PIP-68)"; of "Ownership (Single Reader/Writer)": "Severing", "The list of what is to be
   fenced", "Fences". Invariants I8 and I9, and promise 3: a single writer.

   Read the algorithm like a program. Each branch of an `either` is one step, and any of them may come next. The actors
   are functions that serve requests. A function may be frozen between two of its steps, for any time, or die.

   A function may use what it has read at any later time. So the model has no memory of single functions, but one of all
   facts that any function may still use: each reservation whose marker may come (`claims`), each grant that was seen in
   a session's item (`known`), each end that was decided (`ends`), and each earlier state of the log (`Looks`). So every
   step stands for any number of functions. One append of a holder is followed in two steps, with a pause between:
   it is judged, then created.

   These are one step:
   - A read of items, and the write that is conditional on all that was read. If a version moved, it is read again.
   - The judgement and the create of a marker, or of an append without a session, because Append shows that a segment was
     judged on exactly the log before it, and that a create elsewhere is lost.

   There is no clock (I9). A lease may lapse, and be renewed, at any time: each step that asks whether a session is live
   tries both answers. So a renewal, or the closing of a session (one that never comes back), is no step here.

   Left out: waiters; names of producers, because a session has one; access modes, because a claim here is
   ExclusiveWithFencing or Shared, and the others may do a part of that; limits; ownerships, because a session is severed
   for a lock, at any time. A record that does not change who may write is judged where it lands, and not kept in the log.

   `story` says what each step does, for those who read a history. It decides nothing. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Sessions,
          Sharers,    \* those of Sessions that also claim shared access
          Partitions,
          None,
          LastEpoch,  \* the highest epoch that is claimed
          Off         \* the guards that are switched off, to see what breaks without them

Guards == {"the marker's epoch is above the state's", "grant only after the marker", "grant only what is still reserved",
           "grant on the session's version", "grant all or none", "an epoch is reserved once", "a reservation is no grant",
           "write the end before acting on it", "an end counts for its own session",
           "a reconnection writes what it read", "the marker is in the records' segment",
           "append only while the state names the grant", "the mode of the grant counts",
           "create at the judged offset", "look at the log after the items",
           "fences before the answer", "the list keeps closed and ended grants", "a shared grant's fence raises the epoch",
           "a fence comes before its marker, too"}
ASSUME Off \subseteq Guards
On(guard) == guard \notin Off

\* An entry of the log is an ACCESS marker to a session, or to all, or a record without a session that came after a
\* session that was exclusive. The state has the epoch, and whom the last marker gave access.
All == "all"
Record == "a record without a session"
Marker(to, epoch) == [to |-> to, epoch |-> epoch]
StateOf(entries) ==
  LET markers == SelectSeq(entries, LAMBDA entry : entry.to /= Record)
  IN  IF markers = << >> THEN Marker(All, -1) ELSE markers[Len(markers)]
Entries(entries) == {entries[i] : i \in 1 .. Len(entries)}
Max(a, b) == IF a > b THEN a ELSE b
FirstBroken(promises) ==
  LET broken == SelectSeq(promises, LAMBDA promise : ~promise[2]) IN IF broken = << >> THEN "" ELSE broken[1][1]

\* A grant is accepted while the state names it: its session and epoch, or, if it is shared, its epoch and nobody.
Names(state, grant) == state = Marker(IF grant.mode = "exclusive" THEN grant.by ELSE All, grant.epoch)
Accepts(state, grant) ==
  \/ Names(state, grant)
  \/ ~On("append only while the state names the grant")
  \/ (~On("the mode of the grant counts") /\ state.epoch = grant.epoch)

\* The items as they are written: an exclusive holder that is over is ended in the partition's item and in its
\* session's. `over` is a set of what was held: where, by whom, in which epoch. A reservation that is ended is gone.
Held(at, holder) == [at |-> at, by |-> holder.by, epoch |-> holder.epoch]
EndIn(partition, at, over) ==
  [partition EXCEPT
     !.granted = IF @ /= None /\ Held(at, @) \in over THEN [@ EXCEPT !.ended = TRUE] ELSE @,
     !.claim = IF @ /= None /\ Held(at, @) \in over THEN None ELSE @]
IsOver(by, hold, over) == hold.mode = "exclusive" /\ Held(hold.at, [by |-> by, epoch |-> hold.epoch]) \in over
AfterEnd(by, holds, over) ==
  {hold \in holds : ~IsOver(by, hold, over)} \union
  {[hold EXCEPT !.is = "ended"] : hold \in {h \in holds : IsOver(by, h, over) /\
                                             (h.is /= "reserved" \/ ~On("a reservation is no grant"))}}
EndHolds(sessions, over) ==
  [s \in Sessions |-> IF sessions[s].severed THEN sessions[s]
                      ELSE [sessions[s] EXCEPT !.holds = AfterEnd(s, @, over)]]
Ending(over) == IF over = {} THEN << >> ELSE << ", and ends the hold of", {held.by : held \in over} >>
WithHolds(sessions, s, holds) == [sessions EXCEPT ![s].holds = holds]

\* What a function counts as granted when it reads a session's item: whatever is more than reserved.
Counted(sessions) ==
  UNION {{[by |-> s, at |-> hold.at, epoch |-> hold.epoch, mode |-> hold.mode] :
            hold \in {h \in sessions[s].holds : h.is /= "reserved"}} : s \in Sessions}

(* --algorithm Access
variables
  log = [p \in Partitions |-> << >>],
  \* The partition's item: the highest epoch that was reserved, the claim that has it, the exclusive grant.
  item = [p \in Partitions |-> [epoch |-> -1, claim |-> None, granted |-> None]],
  \* The session's item. A hold is reserved, granted, closed or ended. `fences` is the list of what is to be fenced.
  session = [s \in Sessions |-> [severed |-> FALSE, holds |-> {}, fences |-> {}]],
  claims = {},    \* reservations whose marker may still come: a function may be frozen before it
  known = {},     \* grants that a function has ever read of
  ends = {},      \* exclusive holds whose end some function goes by
  gone = {},      \* sessions of which it was answered that they are severed
  judged = None,  \* the grant under which a batch was judged that is about to be created
  wrong = "",     \* which promise was broken
  story = << >>;

define
  State(p) == StateOf(log[p])
  LastOf(p) == IF log[p] = << >> THEN All ELSE log[p][Len(log[p])].to
  \* What a session's request may have seen in the log. It looked after it had read the items: so the markers of what
  \* these grant were there.
  Told(s, p) == {hold.epoch : hold \in {h \in session[s].holds : h.at = p /\ h.is \in {"granted", "closed"}}} \union
                {holder.epoch : holder \in {item[p].granted} \ {None}}
  Seen(s, p) == {state \in {StateOf(SubSeq(log[p], 1, n)) : n \in 0 .. Len(log[p])} :
                   (\A epoch \in Told(s, p) : epoch <= state.epoch) \/ ~On("look at the log after the items")}
  Looks(s) == {look \in [Partitions -> UNION {Seen(s, p) : p \in Partitions}] : \A p \in Partitions : look[p] \in Seen(s, p)}
  InForce(holder, state) == holder /= None /\ (holder.epoch > state.epoch \/ state = Marker(holder.by, holder.epoch))
  \* The exclusive holders of a partition, granted and reserved, that nothing later replaced.
  Exclusives(p, state) ==
    {Held(p, holder) : holder \in {h \in {item[p].claim} : InForce(h, state)}
                            \union {h \in {item[p].granted} : InForce(h, state) /\ ~h.ended}}
  Written(over) == IF On("write the end before acting on it") THEN over ELSE {}
  Others(s, wanted, states) == {hold \in session[s].holds : hold.at \notin wanted \/ hold.is \notin states}
  Live == {s \in Sessions : ~session[s].severed}
  \* What a session has reserved, and has not been granted yet: its claim.
  Reserved(s, mode) == {hold \in session[s].holds : hold.mode = mode /\ hold.is = "reserved"}
  IsMarked(s, hold) == Marker(IF hold.mode = "exclusive" THEN s ELSE All, hold.epoch) \in Entries(log[hold.at])
  IsItsClaim(s, hold) == hold.mode = "exclusive" => item[hold.at].claim = [by |-> s, epoch |-> hold.epoch]
  \* A fence is due until the log has ended the access. That of a shared grant needs a higher epoch.
  FenceOf(s, fence) ==
    IF fence.mode = "exclusive" THEN
      IF State(fence.at) = Marker(s, fence.epoch)
         \/ (State(fence.at).epoch < fence.epoch /\ On("a fence comes before its marker, too"))
      THEN Marker(All, fence.epoch) ELSE None
    ELSE IF State(fence.at).epoch <= fence.epoch /\ On("a shared grant's fence raises the epoch")
      THEN Marker(All, fence.epoch + 1) ELSE None
end define;

macro tell(words) begin
  story := words;
end macro;

\* `promises` is a sequence of << name, is it kept? >>.
macro check(promises) begin
  wrong := FirstBroken(promises);
end macro;

\* The create at the log's end. A batch that was judged before, and is created after, is lost (I1). So is a marker whose
\* epoch the log has passed.
macro append(p, entries) begin
  log[p] := log[p] \o entries;
  if judged /= None /\ On("create at the judged offset") then
    if judged.at = p then judged := None; end if;
  end if;
  if On("the marker's epoch is above the state's") then
    claims := {late \in claims : late.at = p => late.epoch > entries[Len(entries)].epoch};
  end if;
end macro;

macro write_sessions(sessions) begin
  session := sessions || known := known \union Counted(sessions);
end macro;

process claiming = "claims"
begin
Claim:
  either \* "Claim" 1: one transaction of the partitions' items, the session, and those whose end it writes.
    \* Any of the holders may be taken for lapsed.
    with s \in Live, wanted \in SUBSET Partitions \ {{}}, look \in Looks(s),
         over \in SUBSET UNION {Exclusives(p, look[p]) : p \in wanted},
         epochs = [p \in wanted |-> 1 + IF On("an epoch is reserved once") THEN Max(item[p].epoch, look[p].epoch)
                                        ELSE look[p].epoch],
         holds = AfterEnd(s, Others(s, wanted, {"reserved"}), Written(over)) do
      await \A p \in wanted : epochs[p] <= LastEpoch;
      item := [p \in Partitions |->
                 IF p \notin wanted THEN item[p]
                 ELSE [EndIn(item[p], p, Written(over)) EXCEPT
                         !.epoch = epochs[p], !.claim = [by |-> s, epoch |-> epochs[p]]]];
      write_sessions(WithHolds(EndHolds(session, Written(over)), s, holds \union
        {[at |-> p, epoch |-> epochs[p], mode |-> "exclusive", is |-> "reserved"] : p \in wanted}));
      ends := ends \union over;
      claims := claims \union {[at |-> p, by |-> s, epoch |-> epochs[p]] : p \in wanted};
      tell(<< s, "reserves the epochs", epochs >> \o Ending(over));
    end with;
  or \* The same for shared access. No exclusive session may be live. Where no marker is needed, it is granted at once.
    with s \in Live \cap Sharers, wanted \in SUBSET Partitions \ {{}}, look \in Looks(s),
         over = UNION {Exclusives(p, look[p]) : p \in wanted},
         becomes = IF \A p \in wanted : look[p].to = All THEN "granted" ELSE "reserved",
         replaced = IF becomes = "granted" THEN {"reserved", "granted", "closed", "ended"} ELSE {"reserved"},
         holds = AfterEnd(s, Others(s, wanted, replaced), Written(over)) do
      await \A p \in wanted : look[p].epoch <= LastEpoch;
      item := [p \in Partitions |->
                 IF p \notin wanted THEN item[p]
                 ELSE [EndIn(item[p], p, Written(over)) EXCEPT !.epoch = Max(@, look[p].epoch)]];
      write_sessions(WithHolds(EndHolds(session, Written(over)), s, holds \union
        {[at |-> p, epoch |-> look[p].epoch, mode |-> "shared", is |-> becomes] : p \in wanted}));
      ends := ends \union over;
      tell(<< s, "claims shared access, which is", becomes, "in the epochs", [p \in wanted |-> look[p].epoch] >>
             \o Ending(over));
    end with;
  or \* "Claim" 2: the marker, at the log's end. It may come late, of a claim that was given up or beaten meanwhile.
    with claim \in claims, p = claim.at do
      await State(p).epoch < claim.epoch \/ ~On("the marker's epoch is above the state's");
      await Marker(claim.by, claim.epoch) \notin Entries(log[p]);
      append(p, << Marker(claim.by, claim.epoch) >>);
      tell(<< claim.by, "appends its marker to", p, ", epoch", claim.epoch >>);
    end with;
  or \* That of a shared claim is the marker back to shared, behind a session whose end was written by the reservation.
    with p \in Partitions do
      await State(p).to \in Sessions /\ Held(p, [by |-> State(p).to, epoch |-> State(p).epoch]) \in ends;
      append(p, << Marker(All, State(p).epoch) >>);
      tell(<< "a shared claim appends the marker back to shared to", p, "behind", State(p).to >>);
    end with;
  or \* "Claim" 3: one transaction of the partitions' items and the session; then the answer.
    with s \in Sessions, mode \in {"exclusive", "shared"}, claim = Reserved(s, mode),
         taken = {hold \in claim : IsItsClaim(s, hold) \/ ~On("grant only what is still reserved")} do
      await s \in Live \/ ~On("grant on the session's version");
      await \A hold \in claim : IsMarked(s, hold) \/ ~On("grant only after the marker");
      await taken /= {} /\ (taken = claim \/ ~On("grant all or none"));
      check(<< << "all or none", taken = claim >>,
               << "granted", \A hold \in taken : IsMarked(s, hold) >>,
               << "granted", \A hold \in taken :
                    hold.mode = "exclusive" /\ item[hold.at].granted /= None => item[hold.at].granted.epoch < hold.epoch >> >>);
      item := [p \in Partitions |->
                 IF mode = "shared" \/ ~(\E hold \in taken : hold.at = p) THEN item[p]
                 ELSE LET hold == CHOOSE h \in taken : h.at = p
                      IN  [item[p] EXCEPT !.claim = None, !.granted = [by |-> s, epoch |-> hold.epoch, ended |-> FALSE]]];
      write_sessions(WithHolds(session, s, (session[s].holds \ taken)
                                             \union {[hold EXCEPT !.is = "granted"] : hold \in taken}));
      tell(<< s, "is granted its", mode, "claim" >>);
    end with;
  or \* "Claims that fail": it gives up what it still has reserved.
    with s \in Sessions, mode \in {"exclusive", "shared"}, claim = Reserved(s, mode) do
      await claim /= {};
      item := [p \in Partitions |-> [item[p] EXCEPT !.claim =
                 IF \E hold \in claim : hold.at = p /\ @ = [by |-> s, epoch |-> hold.epoch] THEN None ELSE @]];
      session[s].holds := session[s].holds \ claim;
      tell(<< s, "gives up its", mode, "claim" >>);
    end with;
  end either;
  goto Claim;
end process;

process appending = "appends"
begin
Batch:
  either \* A holder's batch is judged at the log's end, by what a function remembers of the grant.
    with grant \in known do
      await judged = None /\ Accepts(State(grant.at), grant);
      judged := grant;
      tell(<< grant.by, "appends to", grant.at, "in its", grant.mode, "epoch", grant.epoch, ": that is judged at the log's end" >>);
    end with;
  or \* It is created. Its lease is renewed, unless its hold has ended; that changes nothing here.
    await judged /= None;
    check(<< << "single writer", Names(State(judged.at), judged) /\ LastOf(judged.at) /= Record >>,
             << "below", LET granted == item[judged.at].granted
                  IN  granted /= None => granted.by = judged.by \/ granted.epoch <= judged.epoch >>,
             << "only what was granted", judged.mode = "exclusive" => LET granted == item[judged.at].granted
                  IN  granted /= None /\ granted.by = judged.by /\ granted.epoch = judged.epoch >>,
             << "severed, then answered", judged.by \notin gone >> >>);
    tell(<< "the batch of", judged.by, "in its", judged.mode, "epoch", judged.epoch, "is created in", judged.at >>);
    judged := None;
  or \* A batch without a session meets a state that names one. Its end is written first: both items, as they were read.
    with p \in Partitions, n \in 1 .. Len(log[p]), state = StateOf(SubSeq(log[p], 1, n)) do
      await state.to \in Sessions;
      with held = Held(p, [by |-> state.to, epoch |-> state.epoch]) do
        await held \notin ends;
        item[p] := EndIn(item[p], p, Written({held}));
        write_sessions(EndHolds(session, Written({held})));
        ends := ends \union {held};
        tell(<< "an append without a session to", p, "ends the hold of", state.to, ", epoch", state.epoch >>);
      end with;
    end with;
  or \* It is created, with the marker back to shared behind its records.
    with p \in Partitions do
      await State(p).to \in Sessions /\ LastOf(p) /= Record;
      await Held(p, [by |-> State(p).to, epoch |-> State(p).epoch]) \in ends
            \/ (~On("an end counts for its own session") /\ \E held \in ends : held.at = p);
      check(<< << "only after an end", Held(p, [by |-> State(p).to, epoch |-> State(p).epoch]) \in ends >> >>);
      append(p, << [to |-> Record, epoch |-> State(p).epoch] >> \o
                IF On("the marker is in the records' segment") THEN << Marker(All, State(p).epoch) >> ELSE << >>);
      tell(<< "a batch without a session is created in", p, "behind", State(p).to, ", epoch", State(p).epoch >>);
    end with;
  or \* Only without that guard: the marker follows in a segment of its own.
    with p \in Partitions do
      await LastOf(p) = Record;
      append(p, << Marker(All, State(p).epoch) >>);
      tell(<< "the marker back to shared is created in", p >>);
    end with;
  end either;
  goto Batch;
end process;

process sessions = "sessions"
begin
Session:
  either \* "Reconnection": it writes the partition's item and the session's, at the versions that it read.
    with s \in Sessions, p \in Partitions, look \in Looks(s),
         grant \in {g \in known : g.by = s /\ g.at = p /\ g.mode = "exclusive"} do
      await InForce(grant, look[p]);
      if On("a reconnection writes what it read") then
        await s \in Live /\ item[p].granted = [by |-> s, epoch |-> grant.epoch, ended |-> FALSE];
        write_sessions(WithHolds(session, s, Others(s, {p}, {"reserved", "granted", "closed", "ended"}) \union
          {[at |-> p, epoch |-> grant.epoch, mode |-> "exclusive", is |-> "granted"]}));
      end if;
      check(<< << "ended is final", Held(p, grant) \notin ends >> >>);
      tell(<< s, "reconnects to", p, "and is told that it resumes epoch", grant.epoch >>);
    end with;
  or \* Its producer is closed: what it holds ends, and what it has reserved is given up. The session goes on.
    with s \in Live do
      await \E hold \in session[s].holds : hold.is = "granted";
      item := [p \in Partitions |-> [item[p] EXCEPT !.claim = IF @ = None THEN @ ELSE IF @.by = s THEN None ELSE @]];
      session[s].holds := {[hold EXCEPT !.is = IF @ = "granted" THEN "closed" ELSE @] :
                             hold \in {h \in session[s].holds : h.is /= "reserved"}};
      tell(<< s, "closes its producer" >>);
    end with;
  or \* "Severing": one write of the session's item, with the list of what is to be fenced.
    with s \in Live do
      session[s] := [severed |-> TRUE, holds |-> {h \in session[s].holds : h.is = "reserved"}, fences |->
        {[at |-> h.at, epoch |-> h.epoch, mode |-> h.mode] :
           h \in {h \in session[s].holds : h.is /= "reserved" /\
                   (h.is = "granted" \/ On("the list keeps closed and ended grants"))}}];
      tell(<< s, "is severed" >>);
    end with;
  or \* "Fences": any function that meets the session appends one, judged at the log's end.
    with s \in Sessions, fence \in session[s].fences do
      await FenceOf(s, fence) /= None;
      append(fence.at, << FenceOf(s, fence) >>);
      tell(<< "the", fence.mode, "epoch", fence.epoch, "of", s, "is fenced in", fence.at >>);
    end with;
  or \* All fences are done: the list is emptied, and the owner is answered, or whoever met the severed session.
    with s \in Sessions \ (Live \union gone) do
      await (\A fence \in session[s].fences : FenceOf(s, fence) = None) \/ ~On("fences before the answer");
      session[s].fences := {};
      gone := gone \union {s};
      tell(<< "it is answered that", s, "is severed" >>);
    end with;
  end either;
  goto Session;
end process;
end algorithm; *)
\* BEGIN TRANSLATION
\* END TRANSLATION

View == << log, item, session, claims, known, ends, gone, judged, wrong, pc >>

\* I8: topic epochs never decrease along the log.
I8_EpochsNeverFall == \A p \in Partitions : \A i, j \in 1 .. Len(log[p]) : i < j => log[p][i].epoch <= log[p][j].epoch

\* I8: within one epoch there is one exclusive session.
I8_OneSessionPerEpoch ==
  \A p \in Partitions : \A i, j \in 1 .. Len(log[p]) :
    i < j /\ log[p][i].to \in Sessions /\ log[p][j].to \in Sessions => log[p][i].epoch /= log[p][j].epoch

\* Promise 3: once a session has lost access, no record of it enters the log.
\* Between a record and the marker that names its grant lies nothing that ended the grant.
SingleWriter == wrong /= "single writer"

\* An answered grant has its marker in the log, and nobody was granted its epoch, or a later one, before.
Granted == wrong /= "granted"

\* A claim that is answered as granted was granted all of its partitions.
AllOrNone == wrong /= "all or none"

\* An append under an exclusive claim that was never granted is refused.
OnlyWhatWasGranted == wrong /= "only what was granted"

\* Once a claim was answered, no record of an earlier epoch enters the log: all of these lie below the answered offset.
Below == wrong /= "below"

\* No session gets the answer that it resumed what another has ended.
EndedIsFinal == wrong /= "ended is final"

\* An append without a session passes over an exclusive session only after that session's end was decided.
OnlyAfterAnEnd == wrong /= "only after an end"

\* Once it was answered that a session is severed, no grant of it is accepted.
SeveredThenAnswered ==
  /\ wrong /= "severed, then answered"
  /\ \A grant \in known : grant.by \in gone => ~Names(State(grant.at), grant)

Symmetry == Permutations(Sharers) \union Permutations(Sessions \ Sharers) \union Permutations(Partitions)
=============================================================================
