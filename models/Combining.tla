----------------------------- MODULE Combining -----------------------------
(* How one create commits the batches of many processes: offers, the round, and the segment that lists offers.
   Protocol: "Combining"; invariant I16, and I7 for offers.

   Read the algorithm like a program. Each label is one atomic step, with one store call at most, except `ReadRound` and
   the reads of `Wait`, which say why more calls make no difference. Between two labels a process may be frozen, for any
   time, or die.

   An offer is a batch that waits in an item of its own, where each process finds it. The round is one item: it has the
   offers that the segment at one place may list (`bound`, at the place `offset`), and those that may be bound no more
   (`done`). An offer is committed by the segment that lists it. If its caller is answered that nothing was written, the
   caller sends the batch again, or its own process appends it without an offer. So an offer that is committed twice, or
   in spite of such an answer, is a record that is in the log twice.

   Left out: the records of a batch, and why a check refuses it (any offer may be refused at any time, and come due
   later); the age of an offer (a combiner may pass over any); producers; the object store's side of an append, which the
   model Append has. Each segment takes one place. A log is written as the set of ids that each of its segments lists:
   << {}, {o1} >>.

   Each process that offers is followed step by step, from its offer to its caller's answer. So is one process that
   combines. A process that does both does the steps of both. The world around them is all other processes: they combine
   without being frozen before they write the round, and may be frozen between that and their create; they append
   without combining; they trim the log, seal it, and delete offers. The world assumes of them only what is checked of
   the followed combiner (`World_...`).

   There is no clock. The log start may come of age (gc_grace passes) at any time. A look that is young shows at least
   the log start that is of age, which is all that "60 s is less than an hour" is needed for. Segments below that log
   start may be collected. A read finds such a segment still there, or nothing, or a ghost: the segment of a late create,
   which lists offers that were once bound there.

   The round's version is not counted. `current` has the processes that have read the present round: a write of theirs,
   which depends on the version, would succeed. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Combiners, Offers,
          Size, \* the number of places in the log
          None, \* no caller's answer yet
          Off   \* the guards that are switched off, to see what breaks without them

Guards == {"bound only grows", "leave only what was read", "done keeps what is there", "done is not bound again",
           "all offers were read", "round before offers", "round on its version", "a round never moves back",
           "lost below the log start", "list only what is bound", "withdraw only what is free",
           "withdrawal on the round's version", "withdrawal moves the round", "withdrawal needs the offer",
           "refuse only what was withdrawn", "withdraw only what was seen", "put once", "look after the segment",
           "seal before the round"}
ASSUME Off \subseteq Guards
On(guard) == guard \notin Off

Places == 0 .. Size    \* the next offset is `Size` when the log is full
NotDone == -2          \* in `done`: this offer may be bound
Lost == -1             \* in `done`: nothing shows whether it was committed
Nothing == [offset |-> 0, bound |-> {}, done |-> [o \in Offers |-> NotDone]]
Words(r) == << "at", r.offset, ", bound", r.bound, ", done", {o \in Offers : r.done[o] /= NotDone} >>
At(place) == [Nothing EXCEPT !.offset = place]

(* --algorithm Combining
variables
  log = << >>,                         \* the truth: what each segment of the log lists. It never changes, it grows
  sealed = FALSE,                      \* the log's last segment is a SEAL: nothing follows
  start = 0,                           \* the log start, as the head item says it
  aged = 0,                            \* the newest log start that is gc_grace old: what lies below may be collected
  round = Nothing,                     \* the round item
  current = {},                        \* who has read the round as it is now
  tied = [k \in Places |-> {}],        \* the ids that were ever bound to a place: a create there may list them
  offer = [o \in Offers |-> "unmade"], \* then "in flight" (the put was not answered), "there", "gone" for good
  told = [o \in Offers |-> None],      \* what its caller was answered: "acknowledged", "not written", "unknown"
  story = << >>;

define
  End == Len(log)
  There == {o \in Offers : offer[o] = "there"}
  \* What a process may read at a place where the log has, or had, a segment.
  Read(k) == IF k >= End THEN {{}} ELSE IF k >= aged THEN {log[k + 1]} ELSE {log[k + 1]} \union SUBSET tied[k]
  \* What a look shows that began less than 60 s ago: the log start may be at k or below, or may be beyond k.
  MayBeKept(k) == aged <= k
  MayBePassed(k) == k < start
  \* The round moved on to `to`, after what was read at its offset; and after its offset was found below the log start.
  Left(r, to, read) == [offset |-> to, bound |-> {},
                        done |-> [o \in Offers |-> IF o \in r.bound \intersect read THEN r.offset ELSE r.done[o]]]
  Passed(r, to) == [offset |-> to, bound |-> {},
                    done |-> [o \in Offers |-> IF o \in r.bound THEN Lost ELSE r.done[o]]]
  \* All that the round may become when it is moved to `to`.
  Moved(r, to) == IF to = r.offset THEN {r}
                  ELSE (IF MayBeKept(r.offset) THEN {Left(r, to, log[r.offset + 1])} ELSE {})
                       \union (IF MayBePassed(r.offset) THEN {Passed(r, to)} ELSE {})
  \* `done` without the ids whose offers are not among `found`.
  Dropped(r, found) == [r EXCEPT !.done = [o \in Offers |-> IF o \in found THEN r.done[o] ELSE NotDone]]
  Free(r, found) == {o \in found : o \notin r.bound /\ (r.done[o] = NotDone \/ ~On("done is not bound again"))}
  \* The segment at the round's offset was read, is part of the log by a young look, and does not list o.
  Decided(o) == round.offset < End /\ MayBeKept(round.offset) /\ \E read \in Read(round.offset) : o \notin read
  IsFree(o) == round.done[o] = NotDone /\ (o \notin round.bound \/ Decided(o))
end define;

macro tell(words) begin story := words; end macro;

macro again() begin
  known := Nothing; listing := {}; seen := {};
  goto ReadRound;
end macro;

macro answer(what) begin
  told[self] := what; place := 0; current := current \ {self};
end macro;

process combiner \in Combiners
variables known = Nothing, listing = {}, seen = {};
begin
ReadRound: \* "Combining", the way of an append, 2: "it combines". The log was followed to its end, or nearly.
  \* This is one step with the read of the segment at the round's offset, and with the look after that. If the round
  \* changed between the three, its write fails; and what is in a segment never changes.
  either
    await ~On("round before offers");
    seen := There;
    tell(<< self, "reads the offers:", seen >>);
    goto ReadRound;
  or
    with tail \in (IF On("a round never moves back") THEN round.offset ELSE 0) .. End do
      if tail = round.offset then
        either
          known := round;
          tell(<< self, "reads the round, which is at the log's end:" >> \o Words(round));
        or
          await ~On("bound only grows");
          known := [round EXCEPT !.bound = {}];
          tell(<< self, "reads the round, which is at the log's end, and frees what is bound:" >> \o Words(round));
        end either;
      else
        either
          await MayBeKept(round.offset) \/ ~On("lost below the log start");
          with read \in IF On("leave only what was read") THEN Read(round.offset) ELSE {{}} do
            known := Left(round, tail, read);
            tell(<< self, "reads the round:" >> \o Words(round)
                 \o << "; reads at its offset a list of", read, ", and would move it to", tail >>);
          end with;
        or
          await MayBePassed(round.offset);
          known := Passed(round, tail);
          tell(<< self, "reads the round:" >> \o Words(round)
               \o << "; finds its offset below the log start, and would move it to", tail >>);
        end either;
      end if;
    end with;
    current := current \union {self};
  end either;
ReadOffers: \* Read after the round. What is in `done` goes if its offer is gone. Then the check accepts some of them.
  with found \in IF On("round before offers") THEN {There} \union SUBSET There ELSE {seen},
       \* Which drops nothing from `done` where it has read only a part of the offers.
       isPart \in {On("all offers were read") /\ On("round before offers") /\ found /= There},
       dropped \in IF isPart THEN {known} ELSE {known, Dropped(known, found)},
       kept \in {dropped} \union (IF On("done keeps what is there") THEN {} ELSE {Dropped(known, {})}),
       lists \in SUBSET ((known.bound \intersect found) \union Free(kept, found)) do
    listing := lists || seen := {};
    either
      await lists \subseteq known.bound;
      known := At(known.offset) || current := current \ {self};
      tell(<< self, "finds offers", found, "and would list", lists, "which is bound already" >>);
      goto Create;
    or
      known := [kept EXCEPT !.bound = @ \union lists];
      tell(<< self, "finds offers", found, "and would list", lists >>);
    end either;
  end with;
Write: \* I16: the round's version orders all changes of any offer's fate
  if self \in current \/ ~On("round on its version") then
    round := known || current := {} || tied[known.offset] := tied[known.offset] \union known.bound;
    either
      tell(<< self, "writes the round:" >> \o Words(known));
      known := At(known.offset);
      goto Create;
    or
      tell(<< self, "writes the round, and is not answered:" >> \o Words(known));
      again();
    end either;
  elsif On("list only what is bound") then
    tell(<< self, "finds that another process has moved the round" >>);
    again();
  else
    tell(<< self, "finds that another process has moved the round, and goes on" >>);
    known := At(known.offset);
    goto Create;
  end if;
Create: \* I1: the commit point. Where the log was collected it leaves a ghost; else another segment is there already
  if known.offset = End /\ End < Size /\ ~sealed then
    log := Append(log, listing);
    tell(<< self, "creates the segment at", known.offset, "that lists", listing >>);
  else
    tell(<< self, "creates too late at", known.offset >>);
  end if;
  again();
end process;

process offeror \in Offers
variables place = 0;
begin
Put: \* "The way of an append", 1
  either offer[self] := "there"; tell(<< "the process of", self, "puts the offer" >>); goto Wait;
  or offer[self] := "in flight"; tell(<< "the process of", self, "puts the offer, and is not answered" >>);
  end either;
Unsure: \* It is not put again, and not withdrawn, before a read has shown it.
  either
    await offer[self] = "there";
    tell(<< "the process of", self, "reads the offer" >>); goto Wait;
  or
    answer("unknown"); tell(<< "the caller of", self, "is answered OUTCOME_UNKNOWN" >>); goto Done;
  or
    await ~On("withdraw only what was seen");
    answer("not written"); tell(<< "the caller of", self, "is answered that the offer was not put" >>); goto Done;
  or
    await ~On("put once") /\ offer[self] /= "there";
    offer[self] := "there"; tell(<< "the process of", self, "puts the offer again" >>); goto Wait;
  end either;
Wait: \* It follows the log, and reads the round.
  \* Where the round binds the offer, the segment at the round's offset is read in the same step: if the round changed
  \* between the two, the withdrawal fails.
  either
    with k \in 0 .. End - 1, read \in Read(k) do
      await self \in read;
      place := k;
      tell(<< "the process of", self, "reads at", k,
              IF self \in log[k + 1] THEN "a segment that lists it" ELSE "what a late create left, which lists it" >>);
    end with;
    goto Confirm;
  or
    await IsFree(self) \/ (~On("withdraw only what is free") /\ round.done[self] = NotDone);
    current := current \union {self};
    tell(<< "the process of", self, "reads the round, to withdraw it:" >> \o Words(round));
    goto Withdraw;
  or
    \* The process knows the log's end as sealed, and reads the round: nothing is committed here any longer.
    await IsFree(self) /\ (sealed \/ ~On("seal before the round"));
    tell(<< "the process of", self, "reads the round, where it is free:" >> \o Words(round));
    goto Seal;
  or
    await ~On("refuse only what was withdrawn");
    answer("not written"); tell(<< "the caller of", self, "is answered with a refusal" >>); goto Done;
  or
    \* Its time is over; or the offer is gone, or done with -1.
    answer("unknown"); tell(<< "the caller of", self, "is answered OUTCOME_UNKNOWN" >>); goto Done;
  end either;
Confirm: \* I7: a look that is young after the segment was read
  either
    await MayBeKept(place) \/ ~On("look after the segment");
    answer("acknowledged"); tell(<< "the caller of", self, "is acknowledged" >>);
  or
    await MayBePassed(place);
    answer("unknown"); tell(<< "the caller of", self, "is answered OUTCOME_UNKNOWN" >>);
  end either;
  goto Done;
Withdraw: \* "The way of an append", 5: one write deletes the offer and moves the round's version
  if /\ self \in current \/ ~On("withdrawal on the round's version")
     /\ offer[self] = "there" \/ ~On("withdrawal needs the offer")
  then
    offer[self] := "gone";
    either told[self] := "not written"; tell(<< "the process of", self, "withdraws the offer: not written" >>);
    or told[self] := "unknown"; tell(<< "the process of", self, "withdraws the offer, and is not answered" >>);
    end either;
    current := IF On("withdrawal moves the round") THEN {} ELSE current \ {self};
    goto Done;
  else
    current := current \ {self};
    tell(<< "the process of", self, "finds the round moved, or the offer gone" >>);
    goto Wait;
  end if;
Seal: \* The offers are read after the round. A free offer of a sealed log is committed nowhere.
  await sealed;
  if offer[self] = "there" then
    answer("not written"); tell(<< "the caller of", self, "is answered that the log is sealed" >>); goto Done;
  else
    tell(<< "the process of", self, "finds the offer gone" >>); goto Wait;
  end if;
end process;

process world = "world"
begin
World:
  either with o \in {o \in Offers : offer[o] = "in flight"} do
    \* A put that was not answered lands late.
    offer[o] := "there"; tell(<< "the put of", o, "lands" >>);
  end with;
  or with o \in There do
    \* The sweeper, a process that tidies up, or its own process deletes an offer.
    offer[o] := "gone"; tell(<< "a process deletes the offer", o >>);
  end with;
  or with tail \in round.offset .. End, moved \in Moved(round, tail), kept \in {moved, Dropped(moved, There)},
          lists \in SUBSET Free(kept, There) do
    \* A process that is not frozen writes the round, at the log's end as it knows it.
    round := [kept EXCEPT !.bound = @ \union lists];
    tied[tail] := tied[tail] \union kept.bound \union lists; current := {};
    tell(<< "a rival writes the round:" >> \o Words(round));
  end with;
  or with lists \in SUBSET tied[End] do
    \* A process that may have been frozen for long, or that does not combine, creates at the log's end.
    await End < Size /\ ~sealed;
    log := Append(log, lists); tell(<< "a rival creates the segment at", Len(log) - 1, "that lists", lists >>);
  end with;
  or
    \* The topic is being deleted.
    await End < Size /\ ~sealed;
    log := Append(log, {}); sealed := TRUE; tell(<< "a rival appends a SEAL" >>);
  or with to \in start + 1 .. End do
    \* Retention, or a trim.
    start := to; tell(<< "a rival moves the log start to", to >>);
  end with;
  or with to \in aged + 1 .. start do
    \* Time passes: a log start comes of age. Objects below it may go.
    aged := to; tell(<< "the log start", to, "comes of age: what lies below may be collected" >>);
  end with;
  end either;
  goto World;
end process;
end algorithm; *)
\* BEGIN TRANSLATION
\* END TRANSLATION

\* What tells two states apart: all but the words, and but what can have no effect any more. That is: what the round
\* says of an offer that is gone; what was bound to a place that has a segment; what a combiner would write whose round
\* is not the present one; what it would create too late. (Without a guard some of it may have an effect, and counts.)
View ==
  LET IsAlive(c) == CASE pc[c] = "Write" -> c \in current \/ Off /= {}
                      [] pc[c] = "Create" -> known[c].offset = End /\ ~sealed
                      [] OTHER -> TRUE
      Ids == IF Off = {} THEN {o \in Offers : offer[o] /= "gone"} ELSE Offers
      DoneOf(r) == [o \in Offers |-> IF o \in Ids THEN r.done[o] ELSE NotDone]
      Known(c) == IF c \in current \/ Off /= {} THEN [known[c] EXCEPT !.done = DoneOf(known[c])]
                  ELSE [known[c] EXCEPT !.done = Nothing.done]
  IN  << log, sealed, start, aged, round.offset, round.bound \intersect Ids, DoneOf(round), current,
         IF Off = {} THEN tied[End] ELSE tied, offer, told, pc, place, seen,
         [c \in Combiners |-> IF IsAlive(c) THEN << Known(c), listing[c] >> ELSE << >>] >>

\* I16: at most one segment lists an offer's id.
I16_ListedOnce == \A i, j \in 1 .. Len(log) : i /= j => log[i] \intersect log[j] = {}

\* I16: no segment lists an offer, then or later, once its caller was answered that nothing was written.
I16_NotWrittenIsListedNowhere == \A o \in Offers : told[o] = "not written" => \A i \in 1 .. Len(log) : o \notin log[i]

\* I7: an offer that was acknowledged is listed by a segment of the log.
I7_AcknowledgedIsListed == \A o \in Offers : told[o] = "acknowledged" => \E i \in 1 .. Len(log) : o \in log[i]

\* What the world assumes: a segment lists only what the round bound to its place.
World_ListedWhereBound == Off = {} => \A i \in 1 .. Len(log) : log[i] \subseteq tied[i - 1]

\* What the world assumes: the round is never beyond the log's end, and what it calls done is so.
World_RoundIsTrue ==
  Off = {} => /\ round.offset <= Len(log)
              /\ \A o \in There : round.done[o] >= 0 => round.done[o] < Len(log) /\ o \in log[round.done[o] + 1]

Symmetry == Permutations(Offers) \union Permutations(Combiners)
=============================================================================
