-------------------------------- MODULE Once --------------------------------
(* How one request ends several transactions at once, and raises the version of its application with them.
   Protocol: "Several transactions", "Once"; invariants I26 and I27. The markers and cursors of each transaction are in
   Transaction.tla.

   Read the algorithm like a program. Each label is one atomic step, with one store call at most. Between two labels a
   process may be frozen, for any time, or die. Where more than one thing may happen next, all are tried.

   One request is followed step by step: it commits the transactions of all members, each at epoch 0, and names version 1
   of its application. The request is sent more than once, because it was not answered, or a sending is only slow. A read
   of several items is one read for each item here, because it is of no single moment.
   In the world around the request, members begin, time out, are taken by other instances, and finish. A rival run of the
   same application commits the same version with transactions of its own, which are not shown.

   Left out: abort in place of commit, overflow of epochs, DELETE of an application's version, principals.

   `story` says what each step does, for those who read a history. It decides nothing. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Sendings,   \* of the one request
          Members,    \* transactional ids that it names
          Loses,      \* whether the store may lose a write, and not answer
          NamesOnce,  \* whether it names a version, too
          None,
          Off         \* the guards that are switched off, to see what breaks without them

Guards == {"one write for all", "each member on the version that was read", "a member passed over is a condition",
           "two reads that agree", "a version above the stored one", "the version on the item that was read",
           "a repeat is judged before the version", "a version alone answers its repeat",
           "a version is no evidence for a member under way", "an end of nothing is refused"}
ASSUME Off \subseteq Guards
On(guard) == guard \notin Off

Mark == "once"  \* the item of `once`
Items == Members \union (IF NamesOnce THEN {Mark} ELSE {})
Version == 1    \* that the request commits
\* A member: its pair is in force and idle (Empty or Complete*), or ongoing; or the pair is past. Then it was ended by this
\* request, or by another. (Prepare* and Complete* are the same to it: it waits until all are complete.)
Idle == [state |-> "idle", is_ended |-> FALSE]
Committed == [state |-> "past", is_ended |-> TRUE]
Taken == [state |-> "past", is_ended |-> FALSE]
IsIdle(i) == i.state = "idle"  \* it is passed over
IsUnderWay(i) == i.state = "ongoing"
IsRefused(i) == ~IsIdle(i) /\ ~IsUnderWay(i) /\ ~i.is_ended

\* What the request makes of the items that were read: repeat, already, refused, or write.
Decide(seen, is_resumed) ==
  LET repeats == \E m \in Members : seen[m].is_ended
      is_whole == \A m \in Members : ~IsRefused(seen[m])
      is_under_way == \E m \in Members : IsUnderWay(seen[m])
      is_stored == ~NamesOnce \/ seen[Mark].version >= Version
      is_own == NamesOnce /\ seen[Mark] = [version |-> Version, note |-> "own"]
      is_repeat == \/ repeats /\ is_whole /\ ~is_under_way /\ is_stored
                   \/ /\ is_resumed /\ is_whole /\ is_own /\ On("a version alone answers its repeat")
                      /\ ~is_under_way \/ ~On("a version is no evidence for a member under way")
      is_already == NamesOnce /\ seen[Mark].version >= Version /\ On("a version above the stored one")
  IN  IF is_already /\ ~On("a repeat is judged before the version") THEN "already"
      ELSE IF is_repeat THEN "repeat"
      ELSE IF is_already THEN "already"
      ELSE IF ~is_whole \/ repeats THEN "refused"
      ELSE IF ~NamesOnce /\ ~is_under_way /\ On("an end of nothing is refused") THEN "refused"
      ELSE IF ~NamesOnce /\ ~is_under_way THEN "repeat"
      ELSE "write"

(* --algorithm Once
variables
  members = [m \in Members |-> Idle],        \* their items
  once = [version |-> 0, note |-> "none"],        \* the item of the application
  meant = None,                                   \* the truth: members that were ongoing when the request was first sent
  together = {},                                  \* the truth: members that were ongoing at the decision
  outcome = [m \in Members |-> "none"],           \* the truth: of the transaction of epoch 0
  raised = None,                                  \* the truth: who raised the version first: own, rival
  is_answered = FALSE,                            \* the request was answered that all is committed
  seen = [s \in Sendings |-> << >>],              \* what each has read
  wrong = "",                                     \* which answer or write was not right
  story = << >>;                                  \* the step just made, in words

define
  Stored(key) == IF key = Mark THEN once ELSE members[key]
  UnderWay == {m \in Members : IsUnderWay(members[m])}
  IsSame(s, key) == seen[s][key] = Stored(key)
  \* The conditions of the write: a member that was under way, and one that was passed over.
  Holds(s, m) ==
    IF IsUnderWay(seen[s][m]) THEN IsSame(s, m) \/ ~On("each member on the version that was read")
    ELSE IsSame(s, m) \/ ~On("a member passed over is a condition")
  HoldsOnce(s) == ~NamesOnce \/ IsSame(s, Mark) \/ ~On("the version on the item that was read")
  \* What the request has decided is there, and no member has gone on since.
  IsStanding == /\ \A m \in Members : members[m].is_ended \/ IsIdle(members[m])
                /\ (\E m \in Members : members[m].is_ended) \/ (NamesOnce /\ raised = "own")
  \* Whether an answer is right at this moment.
  IsRight(verdict, is_resumed) ==
    CASE verdict = "repeat" -> /\ \A m \in meant \union together : outcome[m] = "commit"
                               /\ NamesOnce => once.version >= Version
      [] verdict = "already" -> /\ once.version >= Version
                                /\ ~IsStanding \/ (together = {} /\ ~is_resumed)
      [] OTHER -> ~IsStanding
end define;

macro tell(words) begin
  story := words;
end macro;

macro again() begin
  seen[self] := << >>; verdict := ""; is_right := TRUE; left := Items;
end macro;

process sending \in Sendings
variables left = Items,         \* the items that are still to be read
          verdict = "",         \* what would be answered without a write
          is_right = TRUE,      \* the truth: whether it was right when it was judged
          is_resumed = FALSE,   \* an earlier attempt was not answered by the store
          parts = {};           \* without "one write for all": the members that are still to be written
begin
Read: \* The items, each at a moment of its own.
  with key \in left do
    tell(<< self, "reads the item of", key >>);
    if meant = None then meant := UnderWay; end if;
    seen[self] := seen[self] @@ (key :> Stored(key));
    left := left \ {key};
    if left # {} then goto Read; end if;
  end with;
Judge: \* A decision is written at once. What is answered without a write is read again first.
  with judged = Decide(seen[self], is_resumed), is_lost \in {FALSE, Loses /\ judged = "write" /\ ~is_resumed} do
    if is_lost then
      tell(<< self, "has no answer of the store, which did nothing, and reads all again" >>);
      is_resumed := TRUE;
      again();
      goto Read;
    elsif judged # "write" then
      tell(<< self, "would answer", judged >>);
      verdict := judged; is_right := IsRight(judged, is_resumed);
    elsif ~((\A m \in Members : Holds(self, m)) /\ HoldsOnce(self)) then
      tell(<< self, "loses its write, and judges all anew" >>);
      again();
      goto Read;
    else
      if UnderWay \ {m \in Members : IsUnderWay(seen[self][m])} # {} then
        wrong := "I26: a member that is ongoing is left out";
      elsif \E m \in Members : IsUnderWay(seen[self][m]) /\ ~IsUnderWay(members[m]) then
        wrong := "I26: a member is decided a second time";
      elsif is_answered /\ UnderWay # {} then
        wrong := "a repeat ends what began after the answer";
      elsif NamesOnce /\ raised # None then
        wrong := "I27: a version is committed twice";
      end if;
      if NamesOnce then
        once := [version |-> Version, note |-> "own"];
        if raised = None then raised := "own"; end if;
      end if;
      together := together \union UnderWay;
      if On("one write for all") \/ Cardinality(UnderWay) < 2 then
        tell(<< self, "decides by one write:", UnderWay >>);
        outcome := [m \in Members |-> IF IsUnderWay(seen[self][m]) THEN "commit" ELSE outcome[m]];
        members := [m \in Members |-> IF IsUnderWay(seen[self][m]) THEN Committed ELSE members[m]];
      else
        tell(<< self, "begins to decide one by one:", UnderWay >>);
        parts := UnderWay;
      end if;
      seen[self] := << >>;
      goto Written;
    end if;
  end with;
Agree: \* The same items again. No version is used twice, so what is as it was read was so when it was judged.
  if (\A key \in DOMAIN seen[self] : seen[self][key] = Stored(key)) \/ ~On("two reads that agree") then
    tell(<< self, "reads all again, and answers", verdict >>);
    if ~is_right then
      wrong := CASE verdict = "repeat" -> "I26: answered, but not all is committed"
                 [] verdict = "already" -> "I27: a repeat is refused by the version that it raised"
                 [] OTHER -> "I26: refused, though all are decided";
    end if;
    if verdict = "repeat" then is_answered := TRUE; end if;
    seen[self] := << >>; verdict := ""; is_right := TRUE; is_resumed := FALSE;
    goto Done;
  else
    tell(<< self, "reads all again, and something has changed" >>);
    again();
    goto Read;
  end if;
Written:
  if parts # {} then
    with m \in parts do
      tell(<< self, "decides by a write of its own:", m >>);
      if IsUnderWay(members[m]) then
        outcome[m] := "commit" || members[m] := Committed;
      end if;
      parts := parts \ {m};
      goto Written;
    end with;
  else
    either
      tell(<< self, "answers that all is committed" >>);
      is_answered := TRUE;
      if ~IsRight("repeat", FALSE) then wrong := "I26: answered, but not all is committed"; end if;
      is_resumed := FALSE;
    or
      tell(<< self, "has no answer of the store, and reads all again" >>);
      is_resumed := TRUE;
      again();
      goto Read;
    end either;
  end if;
end process;

process world = "the world"
begin
World:
  either with m \in Members do
    \* A transaction begins: its first batch is admitted.
    await IsIdle(members[m]);
    tell(<< "the world", "begins a transaction of", m >>);
    members[m] := [members[m] EXCEPT !.state = "ongoing"];
  end with;
  or with m \in Members do
    \* A time-out, or another instance. Its markers are not shown.
    await IsUnderWay(members[m]);
    tell(<< "the world", "aborts the transaction of", m >>);
    outcome[m] := "abort"; members[m] := Taken;
  end with;
  or with m \in Members do
    \* Another instance asks for the id, or the next transaction begins: the pair is past, and `ended` is forgotten.
    await IsIdle(members[m]) \/ members[m].is_ended;
    tell(<< "the world", "goes on with the next epoch of", m >>);
    members[m] := Taken;
  end with;
  or with note \in {"own", "other"} do
    \* The rival run commits the version. Its note may be equal.
    await NamesOnce /\ once.version < Version;
    tell(<< "the world", "raises the version, with transactions of the rival run and the note", note >>);
    if raised # None then wrong := "I27: a version is committed twice"; end if;
    once := [version |-> Version, note |-> note]; raised := "rival";
  end with;
  end either;
  goto World;
end process;
end algorithm; *)
\* BEGIN TRANSLATION
\* END TRANSLATION

View == << members, once, meant, together, outcome, raised, is_answered, seen, wrong, pc, left, verdict, is_right,
           is_resumed, parts >>

\* I26, I27, and what an answer says: each write and each answer is right.
I26_I27_AnswersAreTrue == wrong = ""

\* I26: of what was ongoing at the decision, all is committed, or none is yet and none was lost.
I26_AllOrNone == \A m \in together : outcome[m] # "abort"

\* I27: what is stored was raised by one run.
I27_RaisedOnce == NamesOnce => (once.version >= Version <=> raised # None)

Symmetry == Permutations(Sendings) \union Permutations(Members)
=============================================================================
