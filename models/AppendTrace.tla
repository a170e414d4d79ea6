----------------------------- MODULE AppendTrace -----------------------------
(* Is what the real code did in a simulation a behaviour of Append?

   TraceData has what was recorded: looks, what changed in the stores, and the outcomes of creates. Each kind of line is
   one action here, which must fit. What a process does in between is not recorded: there it may do whatever Append lets
   it do. TLC looks for a way through all lines. If it finds one, it says that `Unfinished` is violated: then the trace
   is explained, and all invariants held on the way. *)
EXTENDS Append, TraceData
VARIABLE line
Now == Trace[line]
Is(event) == line <= Len(Trace) /\ Now.event = event /\ line' = line + 1

Looked == \* by whichever thread
  /\ Is("look")
  /\ state' = [state EXCEPT ![Now.p] = Adopted(Now.p)]
  /\ look' = [look EXCEPT ![Now.p] = LookNow]
  /\ pc' = [pc EXCEPT ![Now.p] = IF @ = "Look" THEN "Follow" ELSE @]
  /\ UNCHANGED << store, log, head, aged, wrong, story, asks, base, began >>
Created ==
  /\ Is("created")
  /\ pc[Now.p] = "Create" /\ Create(Now.p)
  /\ store[Now.key] = None /\ Len(base[Now.p]) = Now.key /\ asks[Now.p] = Now.batch
Outcome(is) ==
  /\ Is(is) /\ Len(base[Now.p]) = Now.key
  /\ \/ pc[Now.p] = "Confirm" /\ Young(Now.p) /\ Confirm(Now.p) /\ look'[Now.p].young = (is = "acknowledged")
     \/ pc[Now.p] = "Meet" /\ store[Now.key] = None /\ Meet(Now.p) /\ is = "unknown"
HeadMoved ==
  /\ Is("head")
  /\ \/ Now.next = Len(head.state) /\ head' = [head EXCEPT !.start = Now.start]
     \/ \E p \in Processes : /\ Young(p) /\ End(p) = Now.next /\ End(p) > Len(head.state)
                             /\ head' = [state |-> state[p], start |-> Now.start]
  /\ head.start <= Now.start /\ Now.start <= Now.next
  /\ UNCHANGED << store, log, aged, state, look, wrong, story, pc, asks, base, began >>
Deleted ==
  /\ Is("deleted") /\ Now.key < aged
  /\ store' = [store EXCEPT ![Now.key] = None]
  /\ UNCHANGED << log, head, aged, state, look, wrong, story, pc, asks, base, began >>

\* What a process is asked for next: the batch that it creates next.
Asked(p) == LET later == {i \in line .. Len(Trace) : Trace[i].event = "created" /\ Trace[i].p = p}
            IN  IF later = {} THEN {} ELSE {Trace[CHOOSE i \in later : \A j \in later : i <= j].batch}

\* Steps that change nothing for one another may be taken in any order. One order is enough, and TLC is faster by it:
\* an unrecorded step waits for a line of its own process, or for one that changes what it reads or is read by.
Acts(p) == Now.event \in {"created", "head", "deleted"} \/ Now.p = p

Unrecorded ==
  /\ line' = line /\ line <= Len(Trace)
  /\ \/ \E p \in {q \in Processes : Acts(q)} :
          \/ Follow(p) \/ Verify(p) \/ Answer(p)
          \/ Judge(p) /\ asks'[p] \in Asked(p) \union {None}
          \/ Meet(p) /\ store[Len(base[p])] /= None
          \/ Create(p) /\ UNCHANGED store
          \/ \* another thread folds
             /\ Follows(End(p), state[p]) /\ state' = [state EXCEPT ![p] = Add(@, store[End(p)].batch)]
             /\ UNCHANGED << store, log, head, aged, look, wrong, story, pc, asks, base, began >>
          \/ \* a look turns old
             /\ Young(p) /\ look' = [look EXCEPT ![p] = OldLook]
             /\ UNCHANGED << store, log, head, aged, state, wrong, story, pc, asks, base, began >>
          \/ \* another thread has looked
             /\ pc[p] = "Look" /\ Young(p) /\ pc' = [pc EXCEPT ![p] = "Judge"]
             /\ UNCHANGED << store, log, head, aged, state, look, wrong, story, asks, base, began >>
     \/ \E to \in aged + 1 .. head.start :
          \* a log start comes of age
          /\ Now.event = "deleted"
          /\ \A p \in Processes : Young(p) => look[p].start >= to
          /\ aged' = to
          /\ UNCHANGED << store, log, head, state, look, wrong, story, pc, asks, base, began >>

TraceSpec ==
  /\ Init /\ line = 1
  /\ [][Looked \/ Created \/ Outcome("acknowledged") \/ Outcome("unknown") \/ HeadMoved \/ Deleted \/ Unrecorded]_<< vars, line >>
TraceView == << View, line >>
Unfinished == line <= Len(Trace)

\* How far any way got: for a trace that is refused. (This counts with one worker only.)
ASSUME TLCSet(1, 0)
Far == IF line > TLCGet(1) THEN TLCSet(1, line) /\ PrintT(<< "followed", line - 1 >>) ELSE TRUE
==============================================================================
