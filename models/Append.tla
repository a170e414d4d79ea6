------------------------------- MODULE Append -------------------------------
(* How one partition is appended to, trimmed and collected, by processes that may be frozen at any point for any time.
   Protocol: "Append", "The checkpoint", "The log start", "When objects may go"; invariants I1 to I7.

   Read the algorithm like a program. Each label is one atomic step, with one store call at most. Between two labels a
   process may be frozen, for any time, or die (then it takes no more steps). Where more than one thing may happen next,
   all are tried: each branch of `either`, and each element of a set at `with`. A step waits until its `await` holds.

   Left out: topics and their deletion, producers (a batch is its own identity), sessions, groups of several batches.
   A batch takes one offset, or two if it is long. A state is written as the batch at each offset: << b1, b1, b2 >>.
   Offsets count from 0, and sequences of TLA+ from 1, so the batch at offset k is state[k + 1].

   The head is the partition's item: the checkpoint, which is a state, and the log start, below which nothing is kept.
   A segment has a chain value, a hash of all below it, in whose place the model has the state on which it was made.
   A *ghost* is a segment that was created late, at a key that had been collected: an object that is no part of the log.
   A process that folds a ghost has a false state. Most guards are there because of ghosts.

   One process is followed step by step, in CI. The world is everything else: the other threads of that process, time,
   the sweeper, and all other processes. These append and write checkpoints at any time, may be frozen, and their creates
   may come late. The world assumes of them only what the invariants say of the followed process.

   There is no clock. A look at the head is young for 60 s, and may turn old here at any time. The segments below a log
   start may be deleted once the log start is gc_grace old, an hour at least. So a log start comes of age only when each
   look from before it is old, which is all that the two times are needed for.

   `story` says what each step does, for those who read a history. It decides nothing. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Processes, Batches,
          Long,  \* those of Batches that take two offsets
          None,
          Off    \* the guards that are switched off, to see what breaks without them

Guards == {"create if absent", "judge again", "judge while young", "drop an old state",
           "look after create", "look is young at create", "next key is absent", "same state at answer",
           "look is young at answer", "log start at answer", "corrupt while young", "save while young",
           "checkpoint first", "grace", "grace is longer"}
ASSUME Off \subseteq Guards
On(guard) == guard \notin Off

TheEnd == "the end"  \* what a reader asks for: the next offset
Keys == 0 .. Cardinality(Batches) + Cardinality(Long) - 1  \* a segment's key is its base offset
Size(batch) == IF batch \in Long THEN 2 ELSE 1
Add(state, batch) == state \o [i \in 1 .. Size(batch) |-> batch]
OldLook == [young |-> FALSE, start |-> 0]  \* also of a process that has forgotten its look
Has(state, batch) == \E i \in 1 .. Len(state) : state[i] = batch
Bases(state) == {k \in 0 .. Len(state) - 1 : k = 0 \/ state[k] /= state[k + 1]}  \* where its batches begin
OffsetOf(state, batch) == CHOOSE i \in Bases(state) : state[i + 1] = batch
Count(state, batch) == Cardinality({i \in 1 .. Len(state) : state[i] = batch})

(* --algorithm Append
variables
  store = [key \in Keys |-> None],       \* segments: batch, by (who made it), after (on which state), real (in the log?)
  log = << >>,                           \* the truth: all that was ever appended. No process sees it
  head = [state |-> << >>, start |-> 0], \* the checkpoint, and the log start
  aged = 0,                              \* the newest log start that is gc_grace old
  state = [p \in Processes |-> << >>],   \* what each process has folded
  look = [p \in Processes |-> OldLook],  \* its last look at the head: is it young, and which log start did it see?
  wrong = "",                            \* which answer was not true
  story = << >>;

define
  Young(p) == look[p].young
  End(p) == Len(state[p])
  At(key) == IF key \in Keys THEN store[key] ELSE None
  Follows(key, known) == At(key) /= None /\ key = Len(known) /\ store[key].after = known  \* by its chain value
  Contradicts(key, known) == At(key) /= None /\ key = Len(known) /\ store[key].after /= known
  LookNow == [young |-> TRUE, start |-> head.start]
  \* What a process knows after a look: the head's state, if its look before was old (then what it has folded may be a
  \* ghost), or if the head is ahead.
  Adopted(p) == IF (~Young(p) /\ On("drop an old state")) \/ Len(head.state) > End(p) THEN head.state ELSE state[p]
end define;

\* An answer ends a request. It is judged here, where it is given: was it true? (The variables of the request are set to
\* what they were at first, so that fewer states differ.)
macro answer(invariant, is_true) begin
  if ~(is_true) then wrong := invariant; end if;
  asks := None; base := << >>; began := 0;
  if look[self].young then goto Judge; else goto Look; end if;
end macro;

\* The outcome of a create is unknown: it may be in the log, or a ghost. The process forgets its look, as the code does.
macro answer_unknown() begin
  look[self] := OldLook; asks := None; base := << >>; began := 0;
  goto Look;
end macro;

process appender \in Processes
variables
  asks = None,   \* the request: a batch to append, or TheEnd
  base = << >>,  \* the state that the create, or the answer, is judged on
  began = 0;     \* how long the log was when the request came
begin
Look: \* "Append" 1: one call reads topic and head. (`||`: both at once, so Adopted sees the look before this one)
  state[self] := Adopted(self) || look[self] := LookNow;
  story := << self, "looks at topic and head: the checkpoint is at", Len(head.state), "and the log start at", head.start >>;
Follow: \* the segments after it are folded, one by one
  if At(End(self)) = None then
    story := << self, "finds no segment at", End(self), "and has folded all there is" >>;
    goto Judge;
  elsif Follows(End(self), state[self]) then
    story := << self, "folds the segment at", End(self), "which has", store[End(self)].batch >>;
    state[self] := Add(state[self], store[End(self)].batch);
    goto Follow;
  elsif Young(self) \/ ~On("corrupt while young") then  \* never true here: nothing damages this log
    story := << self, "meets a segment at", End(self), "that does not follow, and answers CORRUPT_LOG" >>;
    wrong := "I4: answered CORRUPT_LOG";
    goto Judge;
  else
    story := << self, "meets a segment at", End(self), "that does not follow, with an old look: it looks again" >>;
    goto Look;
  end if;
Judge: \* "Append" 2, of this request or, where the last one was answered, of any other. No old state, which may have a ghost
  if ~Young(self) /\ On("judge while young") then
    story := << self, "does not judge: its look is old" >>;
    goto Look;
  else
    with wanted \in IF asks = None THEN Batches \union {TheEnd} ELSE {asks} do
      if asks = None then asks := wanted; began := IF wanted = TheEnd THEN Len(log) ELSE 0; end if;
      if wanted = TheEnd \/ Has(state[self], wanted) then
        story := << self, "is asked for", wanted, "and would answer from its state, which ends at", End(self) >>;
        goto Verify;
      else
        await End(self) \in Keys;
        story := << self, "is asked to append", wanted, "and judges it on its state, which ends at", End(self) >>;
        base := state[self];
        goto Create;
      end if;
    end with;
  end if;
Create: \* "Append" 3, the commit point. Where the log is longer by now, and the key collected, this makes a ghost.
        \* An answer may be lost; then the same create is sent again
  if store[Len(base)] = None \/ ~On("create if absent") then
    store[Len(base)] := [batch |-> asks, by |-> self, after |-> base, real |-> Len(log) = Len(base)];
    if Len(log) = Len(base) then log := Add(log, asks); end if;
    either
      story := << self, "creates the segment at", Len(base), "with", asks >>;
      goto Confirm;
    or
      story := << self, "creates the segment at", Len(base), "with", asks, "but the answer is lost" >>;
      goto Create;
    end either;
  else
    story := << self, "creates nothing at", Len(base), "because a segment is there (412)" >>;
  end if;
Meet: \* "Append" 5: it reads what is there. Who made it, and the batch, take the place of the write-id
  if store[Len(base)] = None then
    story := << self, "finds that the segment at", Len(base), "was collected meanwhile: OUTCOME_UNKNOWN" >>;
    answer_unknown();
  elsif store[Len(base)].by = self /\ store[Len(base)].batch = asks then
    story := << self, "finds its own write-id at", Len(base) >>;
    goto Confirm;
  elsif Contradicts(Len(base), state[self]) /\ On("judge again") then
    base := << >>;
    if Young(self) \/ ~On("corrupt while young") then
      story := << self, "meets another's segment at", Len(base), "that does not follow, and answers CORRUPT_LOG" >>;
      wrong := "I4: answered CORRUPT_LOG";
      goto Judge;
    else
      story := << self, "meets another's segment at", Len(base), "that does not follow, with an old look: it looks again" >>;
      goto Look;
    end if;
  else
    story := << self, "finds another's segment at", Len(base), "and judges again" >>;
    if Follows(Len(base), state[self]) then state[self] := Add(state[self], store[Len(base)].batch); end if;
    base := IF On("judge again") THEN << >> ELSE state[self];
    if ~On("judge again") /\ Len(base) \in Keys then goto Create; else goto Judge; end if;
  end if;
Confirm: \* "Append" 4: the look of I7, unless the last look is young still (then it was young at the create, too, or came
         \* after it). A log start that is not beyond the key shows that the key was never collected: so it is no ghost
  if ~On("look after create") \/ ~On("look is young at create") \/ Young(self) then
    if look[self].start <= Len(base) \/ ~On("look after create") then
      story := << self, "acknowledges", asks, "at", Len(base) >>;
      if state[self] = base then state[self] := Add(base, asks); end if;
      answer("I7: acknowledged, but not in the log", Has(log, asks) /\ OffsetOf(log, asks) = Len(base));
    else
      story := << self, "knows a log start beyond", Len(base), "and answers OUTCOME_UNKNOWN" >>;
      answer_unknown();
    end if;
  else
    state[self] := Adopted(self);
    if head.start <= Len(base) then
      story := << self, "looks once more, and acknowledges", asks, "at", Len(base) >>;
      look[self] := LookNow;
      answer("I7: acknowledged, but not in the log", Has(log, asks) /\ OffsetOf(log, asks) = Len(base));
    else
      story := << self, "looks once more: the log start is beyond", Len(base), "so it answers OUTCOME_UNKNOWN" >>;
      answer_unknown();
    end if;
  end if;
Verify: \* I4: the next key is looked for after the state was folded
  if At(End(self)) /= None /\ On("next key is absent") then
    story := << self, "finds a segment at", End(self), "so its state is not the tail" >>;
    goto Follow;
  else
    story := << self, "sees no segment at", End(self) >>;
    base := state[self];
  end if;
Answer: \* and the age of the look at the head is judged after that. The state may be another by then, if a thread looked
  if /\ (Young(self) \/ ~On("look is young at answer"))
     /\ (look[self].start <= End(self) \/ ~On("log start at answer"))
     /\ (state[self] = base \/ ~On("same state at answer"))
  then
    if asks = TheEnd then
      story := << self, "answers that the log ends at", End(self) >>;
      answer("I4: not the end", began <= End(self) /\ End(self) <= Len(log));
    elsif Has(state[self], asks) then
      story := << self, "answers that", asks, "is a duplicate, of offset", OffsetOf(state[self], asks) >>;
      answer("I4: no duplicate", Has(log, asks) /\ OffsetOf(log, asks) = OffsetOf(state[self], asks));
    else
      story := << self, "no longer has", asks, "in its state, and judges again" >>;
      base := << >>;
      goto Judge;
    end if;
  else
    story := << self, "does not answer: its look is old, or its state has changed" >>;
    base := << >>;
    goto Look;
  end if;
end process;

process world = "world"
begin
World:
  either with p \in Processes do
    \* Another thread of the process, a reader that waits, meets the next segment.
    await Follows(End(p), state[p]);
    story := << "another thread of", p, "folds the segment at", End(p), "which has", store[End(p)].batch >>;
    state[p] := Add(state[p], store[End(p)].batch);
  end with;
  or with p \in Processes do
    \* Another thread of the process looks.
    story := << "another thread of", p, "looks: the checkpoint is at", Len(head.state), "and the log start at", head.start >>;
    state[p] := Adopted(p); look[p] := LookNow;
  end with;
  or with p \in Processes do
    \* A process writes a checkpoint. (One that lands late is of a true state, too, and on the head's version: it loses
    \* where the head has moved.)
    await End(p) > Len(head.state) /\ (Young(p) \/ ~On("save while young"));
    story := << p, "writes a checkpoint at", End(p) >>;
    head.state := state[p];
  end with;
  or with p \in Processes do
    \* Time passes: a look turns old.
    await Young(p);
    story := << p, "is frozen, or waits: its look turns old" >>;
    look[p] := OldLook;
  end with;
  or with batch \in {b \in Batches : ~Has(log, b)} do
    \* Another process appends, and is not frozen in between.
    await Len(log) \in Keys;
    story := << "another process appends", batch, "at", Len(log) >>;
    store[Len(log)] := [batch |-> batch, by |-> "rival", after |-> log, real |-> TRUE]; log := Add(log, batch);
  end with;
  or with key \in {k \in Bases(log) \union {Len(log)} : k > Len(head.state)} do
    \* Another process writes a checkpoint.
    story := << "another process writes a checkpoint at", key >>;
    head.state := SubSeq(log, 1, key);
  end with;
  or with key \in {k \in Bases(log) : store[k] = None}, batch \in Batches do
    \* A create of another process, which was frozen, comes late where the log was collected: a ghost.
    await ~Has(SubSeq(log, 1, key), batch);
    story := << "a late create of another process makes a ghost at", key, "with", batch, "where the log was collected" >>;
    store[key] := [batch |-> batch, by |-> "rival", after |-> SubSeq(log, 1, key), real |-> FALSE];
  end with;
  or with to \in head.start + 1 .. (IF On("checkpoint first") THEN Len(head.state) ELSE Len(log)) do
    \* Retention, or a trim.
    story := << "a trim moves the log start to", to >>;
    head.start := to;
  end with;
  or with to \in aged + 1 .. head.start do
    \* Time passes: a log start comes of age.
    await \A p \in Processes : Young(p) => (look[p].start >= to \/ ~On("grace is longer"));
    story := << "gc_grace has passed since the log start moved to", to >>;
    aged := to;
  end with;
  or with key \in {k \in Keys : store[k] /= None} do
    \* The sweeper deletes one object.
    await key + Size(store[key].batch) <= IF On("grace") THEN aged ELSE head.start;
    story := << "the sweeper deletes the segment at", key >>;
    store[key] := None;
  end with;
  end either;
  goto World;
end process;
end algorithm; *)
\* BEGIN TRANSLATION
\* END TRANSLATION

\* What tells two states apart: all but the words.
View == << store, log, head, aged, state, look, wrong, pc, asks, base, began >>

Kept == {key \in Bases(log) : key + Size(log[key + 1]) > head.start}

\* I1: a segment is never overwritten while it is kept.
\* (A key that was collected may be made again, by a late create.)
I1_NeverOverwritten == \A key \in Kept : store[key] /= None => store[key].real /\ store[key].batch = log[key + 1]

\* I2, I3: what is created was judged on exactly what lies before its offset in the log. So chain values follow, too.
\* A batch that lies there already is not created again. (This is what the world assumes of a late create.)
I2_I3_JudgedAtItsOffset ==
  \A key \in Keys : store[key] /= None =>
    /\ key <= Len(log) /\ store[key].after = SubSeq(log, 1, key)
    /\ ~Has(store[key].after, store[key].batch)

\* I3: a batch that is sent again is in the log once.
I3_Once == \A batch \in Batches : Count(log, batch) <= Size(batch)

\* I4, I7: an end, a duplicate and an acknowledgement are true, and no healthy log is called corrupt.
I4_I7_AnswersAreTrue == wrong = ""

\* I5: the checkpoint names only offsets that are durable.
I5_HeadIsTrue == Len(head.state) <= Len(log) /\ head.state = SubSeq(log, 1, Len(head.state))

\* The log start never lies beyond the checkpoint.
I5_LogStart == head.start <= Len(head.state)

\* I6: all that lies at or above the log start is there.
I6_KeptIsThere == \A key \in Kept : store[key] /= None

\* I6: all that lies at or above the checkpoint is there: a process that starts cold can get to the end.
I6_ColdStart == \A key \in Bases(log) : Len(head.state) <= key => store[key] /= None /\ store[key].real

\* Processes are alike, and so are batches of one size: TLC need not tell them apart.
Symmetry == Permutations(Processes) \union Permutations(Long) \union Permutations(Batches \ Long)
=============================================================================
