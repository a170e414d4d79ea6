-------------------------- MODULE TransactionTrace --------------------------
(* Is what the real code did in a simulation a behaviour of Transaction?

   TraceData has what was recorded: each write of the transaction's item and of the cursor, each batch that begins a
   transaction in the partition, each marker, each time that the partition forgot the producer, and answers. Each line is
   one step of the world, which must fit: what the followed process creates and writes is compared with that in the
   model. So no process is followed here. Nothing is left free between the lines.

   If TLC finds a way through all lines, it says that `Unfinished` is violated: then the trace is explained, and all
   invariants held on the way. *)
EXTENDS Transaction, TraceData
VARIABLE line
Now == Trace[line]
Is(event) == line <= Len(Trace) /\ Now.event = event /\ line' = line + 1

P == "p0"
CursorAs(told) ==
  [sent |-> told.sent, settled |-> told.settled, pending |-> IF told.pending = << >> THEN None ELSE told.pending[1]]
Appended(entry) == log' = [log EXCEPT ![P] = Append(@, entry)]
Others == << forgotten, base, ghost, answer, read, decided, given, wrong, story, pc, task, wrote, ending, left, target, place >>

Wrote ==
  /\ Is("wrote") /\ log' = log
  /\ \/ World /\ item' = Now.item /\ cursor' = CursorAs(Now.cursor)
     \/ \* an addition of a group alone, which the model leaves out
        /\ item.state \in {"Empty", "Complete"} /\ IsIn(item, item.epoch)
        /\ item' = Begun(item) /\ item' = Now.item /\ cursor = CursorAs(Now.cursor)
        /\ UNCHANGED << cursor, Others >>
BatchCreated == Is("batch") /\ World /\ Appended([kind |-> "batch", epoch |-> Now.epoch])
MarkerCreated ==
  /\ Is("marker") /\ Appended([kind |-> Now.kind, epoch |-> Now.epoch])
  /\ \/ World
     \/ \* once more, after Complete
        item.state /= "Prepare" /\ MayMark(P, Now.epoch, Now.kind) /\ UNCHANGED << item, cursor, Others >>
Forgotten ==
  /\ Is("forgotten")
  /\ \/ World /\ forgotten' /= forgotten
     \/ UNCHANGED vars  \* an item that was made anew of what was forgotten before
\* What was answered is true, and its pair was given.
EndAnswered == Is("ended") /\ UNCHANGED vars /\ IsOver(Now.of, Now.kind) /\ Now.epoch = Now.of + 1 /\ Now.epoch \in given
IdAnswered ==
  /\ Is("given") /\ UNCHANGED vars /\ Now.epoch \in given
  /\ \A i \in 1 .. line - 1 : Trace[i].event = "given" /\ Trace[i].epoch = Now.epoch => Trace[i].to = Now.to

TraceSpec ==
  /\ Init /\ line = 1
  /\ [][Wrote \/ BatchCreated \/ MarkerCreated \/ Forgotten \/ EndAnswered \/ IdAnswered]_<< vars, line >>
TraceView == << View, line >>
Unfinished == line <= Len(Trace)

\* How far any way got: for a trace that is refused. (This counts with one worker only.)
ASSUME TLCSet(1, 0)
Far == IF line > TLCGet(1) THEN TLCSet(1, line) /\ PrintT(<< "followed", line - 1 >>) ELSE TRUE
==============================================================================
