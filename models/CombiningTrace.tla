---------------------------- MODULE CombiningTrace ----------------------------
(* Is what the real code did in a simulation a behaviour of Combining?

   TraceData has what was recorded: offers that were put, withdrawn or deleted, writes of the round, what creates list,
   moves of the log start, deletions of segments, and what the callers of offers were answered. Each kind of line is one
   action here, which must fit. Reads are not recorded: a process may have read whatever Combining lets it read. TLC
   looks for a way through all lines. If it finds one, it says that `Unfinished` is violated: then the trace is
   explained, and all invariants held on the way.

   A write of the round succeeds only if no other came since its process has read the round. So one combiner here does
   for whichever process writes the round next. What a create lists must have been bound to its place, whoever makes it
   and however late it lands: that is what the world may do. *)
EXTENDS Combining, TraceData
CONSTANT One  \* the combiner
VARIABLE line
Now == Trace[line]
Is(event) == line <= Len(Trace) /\ Now.event = event /\ line' = line + 1
As(r) == [offset |-> r.place, bound |-> r.bound, done |-> r.done]  \* a round, of a line
AtLeast(least, other) == IF least > other THEN least ELSE other

Made == \* the first write of the round. It may be at any place that was the log's end.
  /\ Is("made") /\ round = Nothing /\ Now.place <= End
  /\ round' = As(Now) /\ current' = {}
  /\ UNCHANGED << log, sealed, start, aged, tied, offer, told, story, pc, known, listing, seen, place >>
Rounded ==
  /\ Is("round")
  /\ pc[One] = "Write" /\ Write(One) /\ One \in current /\ round' = As(Now)
  /\ pc'[One] = "ReadRound"
Created ==
  /\ Is("created") /\ Now.lists \subseteq tied[Now.place]
  /\ \/ /\ Now.place = End /\ ~sealed
        /\ log' = Append(log, Now.lists) /\ sealed' = Now.seals /\ UNCHANGED aged
     \/ \* a late create, where the log was collected
        /\ Now.place < start /\ aged' = AtLeast(aged, Now.place + 1) /\ UNCHANGED << log, sealed >>
  /\ UNCHANGED << start, round, current, tied, offer, told, story, pc, known, listing, seen, place >>
LogStartMoved ==
  /\ Is("log start") /\ start < Now.place /\ Now.place <= End
  /\ start' = Now.place
  /\ UNCHANGED << log, sealed, aged, round, current, tied, offer, told, story, pc, known, listing, seen, place >>
Collected ==
  /\ Is("collected") /\ Now.place < start
  /\ aged' = AtLeast(aged, Now.place + 1)
  /\ UNCHANGED << log, sealed, start, round, current, tied, offer, told, story, pc, known, listing, seen, place >>
Deleted == \* by whichever process
  /\ Is("deleted") /\ offer[Now.offer] = "there"
  /\ offer' = [offer EXCEPT ![Now.offer] = "gone"]
  /\ UNCHANGED << log, sealed, start, aged, round, current, tied, told, story, pc, known, listing, seen, place >>

PutLanded ==
  /\ Is("put")
  /\ IF Now.answered THEN pc[Now.offer] = "Put" /\ Put(Now.offer) /\ offer'[Now.offer] = "there"
     ELSE /\ offer[Now.offer] = "in flight" /\ offer' = [offer EXCEPT ![Now.offer] = "there"]
          /\ UNCHANGED << log, sealed, start, aged, round, current, tied, told, story, pc, known, listing, seen, place >>
Withdrawn == \* one write withdraws several offers
  /\ Is("withdrawn")
  /\ \A o \in Now.ids : pc[o] = "Withdraw" /\ o \in current /\ offer[o] = "there"
  /\ offer' = [o \in Offers |-> IF o \in Now.ids THEN "gone" ELSE offer[o]]
  /\ told' = [o \in Offers |-> IF o \notin Now.ids THEN told[o] ELSE IF Now.answered THEN "not written" ELSE "unknown"]
  /\ pc' = [self \in ProcSet |-> IF self \in Now.ids THEN "Done" ELSE pc[self]]
  /\ current' = {}
  /\ UNCHANGED << log, sealed, start, aged, round, tied, story, known, listing, seen, place >>
NotWritten ==
  /\ Is("not written") /\ told[Now.offer] = "not written"
  /\ UNCHANGED vars
Acknowledged ==
  /\ Is("acknowledged") /\ pc[Now.offer] = "Confirm" /\ place[Now.offer] = Now.place
  /\ Confirm(Now.offer) /\ told'[Now.offer] = "acknowledged"
Sealed ==
  /\ Is("sealed") /\ pc[Now.offer] = "Seal"
  /\ Seal(Now.offer) /\ told'[Now.offer] = "not written"
Unknown ==
  /\ Is("unknown")
  /\ \/ told[Now.offer] = "unknown" /\ UNCHANGED vars  \* by its withdrawal, which was not answered
     \/ pc[Now.offer] = "Unsure" /\ Unsure(Now.offer) /\ told'[Now.offer] = "unknown"
     \/ pc[Now.offer] = "Wait" /\ Wait(Now.offer) /\ told'[Now.offer] = "unknown"

\* Steps that are not recorded. Many of them may be taken at any time: they are taken right before the line that needs
\* them, or before one after which they could no longer be.
IsOf(o, event) == Now.event = event /\ IF event = "withdrawn" THEN o \in Now.ids ELSE Now.offer = o
NextRound == \* the next line that moves the round, or its version
  LET lines == {i \in line .. Len(Trace) : Trace[i].event \in {"round", "withdrawn", "made"}}
  IN  IF lines = {} THEN 0 ELSE CHOOSE i \in lines : \A j \in lines : i <= j
Unrecorded ==
  /\ line' = line /\ line <= Len(Trace)
  /\ \/ \E o \in Offers :
          \/ \* the put was not answered, and lands now, or later, or never
             /\ (IsOf(o, "put") /\ ~Now.answered) \/ IsOf(o, "unknown")
             /\ Put(o) /\ offer'[o] = "in flight"
          \/ \E event \in {"withdrawn", "acknowledged", "sealed"} : IsOf(o, event) /\ Unsure(o) /\ pc'[o] = "Wait"
          \/ IsOf(o, "withdrawn") /\ Wait(o) /\ pc'[o] = "Withdraw"
          \/ IsOf(o, "acknowledged") /\ Wait(o) /\ pc'[o] = "Confirm" /\ place'[o] = Now.place
          \/ IsOf(o, "sealed") /\ Wait(o) /\ pc'[o] = "Seal"
     \/ /\ Now.event \in {"round", "deleted", "collected"} /\ NextRound > 0
        /\ Trace[NextRound].event = "round"
        /\ \/ ReadRound(One) /\ known'[One].offset = Trace[NextRound].place
           \/ ReadOffers(One) /\ pc'[One] = "Write" /\ known'[One] = As(Trace[NextRound])

TraceSpec ==
  /\ Init /\ line = 1
  /\ [][\/ Made \/ Rounded \/ Created \/ LogStartMoved \/ Collected \/ Deleted
        \/ PutLanded \/ Withdrawn \/ NotWritten \/ Acknowledged \/ Sealed \/ Unknown \/ Unrecorded]_<< vars, line >>
TraceView == << View, line >>
Unfinished == line <= Len(Trace)

\* How far any way got: for a trace that is refused. (This counts with one worker only.)
ASSUME TLCSet(1, 0)
Far == IF line > TLCGet(1) THEN TLCSet(1, line) /\ PrintT(<< "followed", line - 1 >>) ELSE TRUE
==============================================================================
