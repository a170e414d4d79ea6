----------------------------- MODULE AccessTrace -----------------------------
(* Is what the real code did in a simulation a behaviour of Access?

   TraceData has what was recorded: each write of the partition's item and of sessions' items, each batch and marker that
   was created, and answers. Each kind of line is one action here, which must fit. What happens in between is not
   recorded, and is free: a batch is judged; a function goes by an end that was written before. TLC looks for a way
   through all lines. If it finds one, it says that `Unfinished` is violated: then the trace is explained, and all
   invariants held on the way. *)
EXTENDS Access, TraceData
VARIABLE line
Now == Trace[line]
Is(event) == line <= Len(Trace) /\ Now.event = event /\ line' = line + 1

P == "p0"
Set(values) == {values[i] : i \in 1 .. Len(values)}
Optional(values) == IF values = << >> THEN None ELSE values[1]
Items(told) ==
  [item EXCEPT ![P] = [epoch |-> told.epoch, claim |-> Optional(told.claim), granted |-> Optional(told.granted)]]
After(told, s) ==
  LET its == {one \in Set(told) : one.by = s}
  IN  IF its = {} THEN session[s]
      ELSE LET one == CHOOSE one \in its : TRUE
           IN  [severed |-> one.severed, holds |-> Set(one.holds), fences |-> Set(one.fences)]
\* The items after the step are those of the line.
AsWritten == item' = Items(Now.item) /\ session' = [s \in Sessions |-> After(Now.sessions, s)] /\ log' = log

Wrote == Is("wrote") /\ (Claim \/ Batch \/ Session) /\ AsWritten
\* A reconnection: it writes the session, whatever changes in it, and is answered that it resumes.
Resumed ==
  /\ Is("resumed") /\ Session /\ AsWritten /\ UNCHANGED gone
  /\ [at |-> P, epoch |-> Now.epoch, mode |-> "exclusive", is |-> "granted"] \in session'[Now.by].holds
MarkerCreated == Is("marker") /\ (Claim \/ Session) /\ log' = [log EXCEPT ![P] = Append(@, Marker(Now.to, Now.epoch))]
BatchCreated ==
  /\ Is("batch")
  /\ IF Now.by /= "" THEN
       judged /= None /\ Batch /\ judged' = None /\ log' = log /\ judged.by = Now.by /\ judged.epoch = Now.epoch
     ELSE IF State(P).to = All THEN
       Now.epoch = State(P).epoch /\ ~Now.goes_back /\ UNCHANGED vars
     ELSE
       /\ Now.goes_back /\ Batch
       /\ log' = [log EXCEPT ![P] = @ \o << [to |-> Record, epoch |-> Now.epoch], Marker(All, Now.epoch) >>]
\* What was answered at some time is so for good.
WasGranted ==
  /\ Is("granted") /\ UNCHANGED vars
  /\ [by |-> Now.by, at |-> P, epoch |-> Now.epoch, mode |-> Now.mode] \in known
  /\ Now.mode = "exclusive" => Marker(Now.by, Now.epoch) \in Entries(log[P])
WasSevered == Is("severed") /\ UNCHANGED vars /\ Now.by \in gone

Unrecorded ==
  /\ line' = line /\ line <= Len(Trace)
  /\ \/ Now.event = "batch" /\ judged = None /\ Batch /\ judged' /= None
        /\ judged'.by = Now.by /\ judged'.epoch = Now.epoch
     \/ \* a function goes by the end of a session that holds nothing, or that was ended before
        /\ Now.event \in {"batch", "marker"} /\ Batch /\ UNCHANGED << item, session, log >> /\ ends' /= ends
     \/ \* a severed session that had nothing to be fenced
        /\ Now.event = "severed" /\ Session /\ UNCHANGED << item, session, log >> /\ Now.by \in gone' \ gone

TraceSpec ==
  /\ Init /\ line = 1
  /\ [][Wrote \/ Resumed \/ MarkerCreated \/ BatchCreated \/ WasGranted \/ WasSevered \/ Unrecorded]_<< vars, line >>
TraceView == << View, line >>
Unfinished == line <= Len(Trace)

\* How far any way got: for a trace that is refused. (This counts with one worker only.)
ASSUME TLCSet(1, 0)
Far == IF line > TLCGet(1) THEN TLCSet(1, line) /\ PrintT(<< "followed", line - 1 >>) ELSE TRUE
==============================================================================
