---------------------------- MODULE Transaction ----------------------------
(* How a transaction ends, and what comes late to it: its item (the coordinator), the partitions and the cursor that it
   writes to, and processes that may be frozen at any point for any time.
   Protocol: "The state machine", "Admission", "Ending a transaction", "Offsets in a transaction", "In the fold";
   invariants I10 to I15. Several transactions at once, and `once`, are in Once.tla.

   Read the algorithm like a program. Each label is one atomic step, with one store call at most. Between two labels a
   process may be frozen, for any time, or die. Where more than one thing may happen next, all are tried.

   There is one transactional id, with one producer id. Its epochs begin at 0, and grow at every end. A partition's log is
   the sequence of the batches and markers of this producer:
     batch e              its first transactional batch at epoch e. (Later ones of e join the open transaction, and ask
                          for nothing.)
     plain e              a batch of this producer id that is not transactional, sent by a client that should not.
     commit E, abort E    the marker that ends the open transaction. E is above the epoch of the batches that it ends.

   A process knows the part of the producer's state that it has folded since its memory began (`base`). An open
   transaction is part of the partition's state, so it is never forgotten. The rest of the producer's state is an item of
   its own, which expires (`forgotten`), so that a memory that begins later does not have it.

   Processes are followed step by step. The world around them is all other processes, which are never frozen, so that
   each of their steps reads what it needs at that moment. But their batches may come late, too. The world stands for any
   number of processes, because what it may create (`MayCreate`, `MayMark`) is compared with what the followed process
   creates.

   Left out: the principal, overflow of epochs (a new producer id), expiry of the id, EXTEND, sequences and windows, groups
   (an offset may be sent while the transaction is Ongoing), topics and their deletion, hanging transactions. The log
   itself is as Append.tla leaves it: a create that comes late loses, or was made where the log was collected (a ghost).

   There is no clock. A time-out may be due, a state may lapse and an item may expire at any time.

   `story` says what each step does, for those who read a history. It decides nothing. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Processes, Partitions, None,
          LastEpoch,  \* epochs are 0 .. LastEpoch
          Places,     \* a log has at most so many
          Commits,    \* the cursor is sent at most so many commits
          Kinds,      \* which requests come: "id", "keep" (an id request with a pair), "commit", "abort", "fence", "time-out"
          Ghosts,     \* whether a late create may land where the log was collected
          Plain,      \* whether the producer id is used for plain batches, too
          Off         \* the guards that are switched off, to see what they are for

Guards == {"admit before the create", "a new state voids an admission", "a lowered epoch voids an admission",
           "a higher epoch refuses, lapsed or not", "create at the judged offset",
           "no batch amid an earlier transaction", "no plain batch amid a transaction",
           "decide on the version that was read", "a marker where nothing is open, too",
           "an unknown producer's marker reads the item", "done only from a verified tail",
           "a marker counts only in the log", "Complete after the markers", "Complete after the cursors",
           "the item in the write of an offset", "settle only what is older", "the later commit stays",
           "a fenced epoch is for markers alone", "ended answers a repeat", "kept answers a repeat"}
ASSUME Off \subseteq Guards
On(guard) == guard \notin Off

NoEpoch == -1
Epochs == 0 .. LastEpoch
NoItem == [state |-> "Empty", epoch |-> 0, result |-> "none", named |-> {}, cursor |-> FALSE,
           ended |-> NoEpoch, kept |-> NoEpoch, fenced |-> FALSE]

------------------------------------------------------------------------------
(* The fold: what a sequence of entries says of the producer. *)
IsMarker(entry) == entry.kind \in {"commit", "abort"}
RECURSIVE Open(_)  \* the epoch of what is open at the end, or NoEpoch
Open(entries) ==
  IF entries = << >> THEN NoEpoch
  ELSE LET last == entries[Len(entries)]
           before == Open(SubSeq(entries, 1, Len(entries) - 1))
       IN  CASE IsMarker(last) -> NoEpoch
             [] last.kind = "plain" -> before
             [] OTHER -> IF before = NoEpoch THEN last.epoch ELSE before
LastOf(entries) == IF entries = << >> THEN NoEpoch ELSE entries[Len(entries)].epoch  \* the producer's epoch
Has(entries, kind, epoch) == \E i \in 1 .. Len(entries) : entries[i] = [kind |-> kind, epoch |-> epoch]
Since(entries, position) == SubSeq(entries, position + 1, Len(entries))

------------------------------------------------------------------------------
(* "The state machine": what a request makes of the item. The verdict is
     refused, answer   the request is over, and nothing is written;
     finish            what is prepared is finished first; then it is judged again;
     write             the item is written, on the version that was read. If it is prepared then, it is finished. *)
Request(kind, epoch, part) == [kind |-> kind, epoch |-> epoch, part |-> part]
Emptied(i, state, epoch) == [i EXCEPT !.state = state, !.epoch = epoch, !.named = {}, !.cursor = FALSE]
Ended(i, result, ended, kept, fenced) ==
  [i EXCEPT !.state = "Prepare", !.epoch = i.epoch + 1, !.result = result, !.ended = ended, !.kept = kept,
            !.fenced = fenced]
FencingAbort(i, kept) == Ended(i, "abort", NoEpoch, kept, TRUE)
Completed(i) == Emptied(i, "Complete", i.epoch)
NextEpoch(i, kept) ==
  [Emptied(i, "Empty", i.epoch + 1) EXCEPT !.result = "none", !.ended = NoEpoch, !.kept = kept, !.fenced = FALSE]
Begun(i) ==
  IF i.state = "Ongoing" THEN i
  ELSE [i EXCEPT !.state = "Ongoing", !.result = "none", !.ended = NoEpoch, !.kept = NoEpoch]
IsIn(i, epoch) == epoch = i.epoch /\ (~i.fenced \/ ~On("a fenced epoch is for markers alone"))

Verdict(verdict, i) == [verdict |-> verdict, item |-> i]
Written(i) == IF i.epoch \in Epochs THEN Verdict("write", i) ELSE Verdict("none", i)  \* beyond the bounds of the model
DecideInit(i, r) ==  \* the id request, with the pair of r.epoch or without one
  LET is_kept == r.epoch # NoEpoch /\ r.epoch = i.kept /\ On("kept answers a repeat")
  IN  IF is_kept /\ i.state = "Empty" THEN Verdict("answer", i)
      ELSE IF r.epoch # NoEpoch /\ ~is_kept /\ (~IsIn(i, r.epoch) \/ i.state = "Prepare") THEN Verdict("refused", i)
      ELSE IF i.state = "Prepare" THEN Verdict("finish", i)
      ELSE IF i.state = "Ongoing" THEN Written(FencingAbort(i, r.epoch))
      ELSE Written(NextEpoch(i, r.epoch))
DecideEnd(i, r) ==
  IF i.ended = r.epoch /\ On("ended answers a repeat") THEN
    IF r.kind # i.result THEN Verdict("refused", i)
    ELSE Verdict(IF i.state = "Prepare" THEN "finish" ELSE "answer", i)
  ELSE IF ~IsIn(i, r.epoch) \/ i.state = "Prepare" THEN Verdict("refused", i)
  ELSE IF i.state = "Ongoing" THEN Written(Ended(i, r.kind, r.epoch, i.kept, FALSE))
  ELSE IF r.kind = "commit" THEN Verdict("refused", i)
  ELSE Written([Emptied(i, "Complete", i.epoch + 1) EXCEPT !.result = "abort", !.ended = r.epoch, !.kept = NoEpoch])
DecideFence(i) ==
  IF i.state = "Prepare" THEN Verdict("finish", i)
  ELSE IF i.state = "Ongoing" THEN Written(FencingAbort(i, NoEpoch))
  ELSE IF i.fenced THEN Verdict("answer", i)
  ELSE Written([Emptied(i, "Complete", i.epoch + 1) EXCEPT !.result = "abort", !.ended = NoEpoch, !.kept = NoEpoch,
                                                          !.fenced = TRUE])
DecideAdd(i, r) ==  \* an addition, or an admission
  IF ~IsIn(i, r.epoch) THEN Verdict("refused", i)
  ELSE IF i.state = "Prepare" THEN Verdict("finish", i)
  ELSE IF i.state = "Ongoing" /\ r.part \in i.named THEN Verdict("answer", i)
  ELSE Written([Begun(i) EXCEPT !.named = @ \union {r.part}])
DecideSend(i, r) ==
  IF ~IsIn(i, r.epoch) \/ i.state # "Ongoing" THEN Verdict("refused", i)
  ELSE Written([i EXCEPT !.cursor = TRUE])
Decide(i, r) ==
  CASE r.kind \in {"id", "keep"} -> DecideInit(i, r)
    [] r.kind \in {"commit", "abort"} -> DecideEnd(i, r)
    [] r.kind = "fence" -> DecideFence(i)
    [] r.kind = "time-out" -> IF i.state = "Ongoing" THEN Written(FencingAbort(i, NoEpoch)) ELSE Verdict("answer", i)
    [] r.kind \in {"batch", "add"} -> DecideAdd(i, r)
    [] r.kind = "send" -> DecideSend(i, r)

\* What is asked of the coordinator. An epoch may be an old instance's, or one that was never given.
Requests ==
  {Request(kind, epoch, None) : kind \in Kinds \intersect {"keep", "commit", "abort"}, epoch \in Epochs}
    \union {Request(kind, NoEpoch, None) : kind \in Kinds \intersect {"id", "fence", "time-out"}}

(* --algorithm Transaction
variables
  item = NoItem,                                  \* the coordinator: one versioned item
  log = [part \in Partitions |-> << >>],          \* the truth of each partition
  forgotten = [part \in Partitions |-> 0],        \* a memory that begins now does not know of the producer what lies before
  cursor = [sent |-> 0, settled |-> 0, pending |-> None],  \* a group's cursor: commits are numbered as they are sent
  base = [p \in Processes |-> [part \in Partitions |-> 0]],  \* from where on each process knows the producer
  ghost = [p \in Processes |-> NoEpoch],          \* a marker of its own that it has folded, and that is not in the log
  answer = [p \in Processes |-> "none"],          \* of the coordinator, to a check: none, asked, given
  read = [p \in Processes |-> None],              \* the item as it was read, while no other write has come between
  decided = [epoch \in Epochs |-> "none"],        \* the truth: the outcome of the transaction of each epoch
  given = {0},                                    \* the truth: epochs that some request was given
  wrong = "",                                     \* which answer or write was not right
  story = << >>;                                  \* the step just made, in words

define
  IsPrepared(epoch, result) == item.state = "Prepare" /\ item.epoch = epoch /\ item.result = result
  \* What a process knows of the producer in a partition, at the log's end.
  Known(p, part) == IF ghost[p] # NoEpoch THEN ghost[p] ELSE LastOf(Since(log[part], base[p][part]))
  OpenTo(p, part) == IF ghost[p] # NoEpoch THEN NoEpoch ELSE Open(log[part])
  \* "Judging" of a batch, where what is known may have lapsed.
  Counts(p, part, lapsed) ==
    IF lapsed /\ OpenTo(p, part) = NoEpoch /\ ~On("a higher epoch refuses, lapsed or not") THEN NoEpoch
    ELSE Known(p, part)
  Judged(p, part, epoch, lapsed) ==
    IF Counts(p, part, lapsed) > epoch THEN "refused"
    ELSE IF Has(Since(log[part], base[p][part]), "batch", epoch) /\ Counts(p, part, lapsed) = epoch THEN "duplicate"
    ELSE IF answer[p] # "given" /\ On("admit before the create") THEN "admit first"
    ELSE IF Open(log[part]) # NoEpoch /\ On("no batch amid an earlier transaction") THEN "refused"
    ELSE "append"
  \* "Ending a transaction": of a marker.
  MarkerJudged(p, part, epoch) ==
    IF OpenTo(p, part) # NoEpoch THEN IF OpenTo(p, part) < epoch THEN "append" ELSE "done"
    ELSE IF Known(p, part) >= epoch THEN "done"
    ELSE IF ~On("a marker where nothing is open, too") THEN "done"
    ELSE IF answer[p] # "given" /\ On("an unknown producer's marker reads the item") THEN "ask"
    ELSE "append"
  \* Which batches and markers come from the world, so from processes that are not followed. What the followed one creates is
  \* compared with these. So the world stands for any number of processes like it.
  MayCreate(part, epoch) ==
    /\ part \in item.named /\ epoch = IF item.state = "Ongoing" THEN item.epoch ELSE item.epoch - 1
    /\ ~Has(log[part], "batch", epoch) /\ LastOf(log[part]) <= epoch
    /\ item.state = "Ongoing" \/ \A i \in 1 .. Len(log[part]) : log[part][i].epoch <= epoch
  MayMark(part, epoch, result) ==
    /\ LastOf(Since(log[part], forgotten[part])) < epoch
    /\ \/ part \in item.named /\ IsPrepared(epoch, result)
       \/ Has(log[part], result, epoch)  \* once more: the first one was forgotten, or the epoch was lowered since
  IsSettled(epoch) == IF cursor.pending = None THEN TRUE ELSE cursor.pending.epoch >= epoch
  Settled(epoch, result) ==
    IF result = "commit" /\ (cursor.pending.number > cursor.settled \/ ~On("the later commit stays"))
    THEN [cursor EXCEPT !.pending = None, !.settled = cursor.pending.number]
    ELSE [cursor EXCEPT !.pending = None]
  \* An end was answered: nothing of that transaction is left, and its outcome is the one that was asked for.
  IsOver(epoch, result) ==
    /\ decided[epoch] = result \/ (decided[epoch] = "none" /\ result = "abort")
    /\ \A part \in Partitions : Open(log[part]) = NoEpoch \/ Open(log[part]) > epoch
    /\ IsSettled(epoch + 1)
end define;

macro tell(words) begin
  story := words;
end macro;

\* A write of the item. What others have read is of an older version from now on.
macro write(new, who) begin
  if item.state = "Prepare" /\ new # Completed(item) then wrong := "I10: what was decided is changed";
  elsif new.state = "Prepare" /\ item.state # "Ongoing" then wrong := "I10: decided, though nothing was ongoing";
  elsif new.epoch > item.epoch /\ ~new.fenced /\ new.epoch \in given then wrong := "I13: a pair is given twice";
  elsif new.epoch < item.epoch then wrong := "I13: an epoch falls";
  end if;
  if new.state = "Prepare" /\ item.state = "Ongoing" then decided[new.epoch - 1] := new.result; end if;
  if new.epoch > item.epoch /\ ~new.fenced then given := given \union {new.epoch}; end if;
  read := [p \in Processes |-> IF On("decide on the version that was read") \/ p = who THEN None ELSE read[p]];
  item := new;
end macro;

\* The end of a request. A refusal of an end says that it has decided nothing, unless another took the id meanwhile.
macro refuse() begin
  if wrote /\ (item.ended = task.epoch \/ (item.kept = task.epoch /\ item.state = "Empty")) then
    wrong := "I13: refused, though its own write is in force";
  end if;
  task := None; wrote := FALSE; ending := None; left := {}; answer[self] := "none";
end macro;

macro reply() begin
  if task # None /\ task.kind \in {"commit", "abort"} /\ ~IsOver(task.epoch, task.kind) then
    wrong := "an end is answered before it is over";
  end if;
  task := None; wrote := FALSE; ending := None; left := {}; answer[self] := "none";
end macro;

process process_ \in Processes
variables task = None, wrote = FALSE, ending = None, left = {}, target = None, place = 0;
begin
Read: \* Something is asked of the process. It reads the item, and decides.
  either
    \* A request, or the one that is under way, again.
    with r \in IF task = None THEN Requests ELSE {task}, d = Decide(item, r) do
      await d.verdict # "none";
      if task = None then await d.verdict # "refused"; end if;
      if d.verdict = "refused" then
        tell(<< self, "is refused its", r.kind, "request of epoch", r.epoch >>);
        refuse();
        goto Read;
      elsif d.verdict = "answer" /\ r.kind = "batch" then
        tell(<< self, "reads that the transaction of epoch", r.epoch, "is Ongoing, and names", r.part >>);
        if answer[self] = "asked" then answer[self] := "given"; end if;
        goto Judge;
      elsif d.verdict = "answer" then
        tell(<< self, "answers a repeated", r.kind, "request of epoch", r.epoch >>);
        reply();
        goto Read;
      elsif d.verdict = "finish" then
        \* Unless it is the end of that transaction, its client asks again: that is another request.
        tell(<< self, "meets a prepared transaction with its", r.kind, "request of epoch", r.epoch >>);
        task := IF r.kind \in {"commit", "abort"} THEN r ELSE None;
        ending := [epoch |-> item.epoch, result |-> item.result, cursor |-> item.cursor];
        left := item.named; answer[self] := "none";
        goto Mark;
      else
        tell(<< self, "reads the item for its", r.kind, "request of epoch", r.epoch >>);
        task := r; read[self] := item;
        goto Write;
      end if;
    end with;
  or
    \* A transactional batch, of whichever instance.
    await task = None;
    with epoch \in given \union (IF item.fenced THEN {item.epoch} ELSE {}), where \in Partitions do
      tell(<< self, "is sent a batch of epoch", epoch, "for", where >>);
      task := Request("batch", epoch, where);
      goto Judge;
    end with;
  or
    \* An offset, in the transaction of an epoch that it has read to be Ongoing.
    await task = None /\ item.state = "Ongoing" /\ cursor.sent < Commits;
    tell(<< self, "reads the item to send an offset in the transaction of epoch", item.epoch >>);
    task := Request("send", item.epoch, None); read[self] := item;
    goto Send;
  or
    \* A reader, or the sweeper, meets what is prepared.
    await task = None /\ item.state = "Prepare";
    tell(<< self, "meets the prepared transaction, whose markers have epoch", item.epoch >>);
    ending := [epoch |-> item.epoch, result |-> item.result, cursor |-> item.cursor];
    left := item.named; answer[self] := "none";
    goto Mark;
  end either;
Write: \* One conditional write. Where it prepares, it decides (I10).
  if read[self] = None then
    tell(<< self, "loses its write of the item, and judges anew" >>);
    goto Read;
  else
    with new = Decide(read[self], task).item do
      tell(<< self, "writes the item for its", task.kind, "request of epoch", task.epoch, "which is", new.state,
              "at epoch", new.epoch >>);
      write(new, self);
      either
        \* The answer comes.
        if task.kind = "batch" then
          if answer[self] = "asked" then answer[self] := "given"; end if;
          goto Judge;
        elsif new.state = "Prepare" then
          if task.kind \notin {"commit", "abort"} then task := None; end if;
          ending := [epoch |-> new.epoch, result |-> new.result, cursor |-> new.cursor];
          left := new.named; answer[self] := "none";
          goto Mark;
        else
          task := None; wrote := FALSE;
          goto Read;
        end if;
      or
        \* It is lost, and the request is judged again, from a fresh read.
        if task.kind \in {"commit", "abort"} \/ (task.kind = "keep" /\ new.state = "Empty") then
          wrote := TRUE;
        else
          task := None; wrote := FALSE; answer[self] := "none";
        end if;
        goto Read;
      end either;
    end with;
  end if;
Send: \* One item transaction: the cursor with its pending offset, and the item on the version that was read.
  if read[self] = None /\ On("the item in the write of an offset") then
    tell(<< self, "loses its write of the cursor and the item" >>);
    task := None;
  else
    tell(<< self, "leaves an offset pending in the transaction of epoch", task.epoch >>);
    cursor := [cursor EXCEPT !.sent = @ + 1, !.pending = [epoch |-> task.epoch, number |-> cursor.sent + 1]];
    if read[self] # None then write([item EXCEPT !.cursor = TRUE], self); end if;
    task := None;
  end if;
  goto Read;
Judge: \* A batch, on the state at the log's end ("Order of judgement").
  with lapsed \in {FALSE} \union (IF On("a higher epoch refuses, lapsed or not") THEN {} ELSE {TRUE}),
       verdict = Judged(self, task.part, task.epoch, lapsed)
  do
    if ghost[self] # NoEpoch then
      tell(<< self, "looks again, and drops an old state" >>);
      ghost[self] := NoEpoch; base[self] := forgotten;
      goto Judge;
    elsif verdict = "admit first" then
      tell(<< self, "must ask the coordinator first for its batch of epoch", task.epoch >>);
      answer[self] := "asked";
      goto Read;
    elsif verdict = "append" then
      await Len(log[task.part]) < Places;
      tell(<< self, "judges its batch of epoch", task.epoch, "at offset", Len(log[task.part]) >>);
      place := Len(log[task.part]);
      goto Create;
    else
      tell(<< self, "finds its batch of epoch", task.epoch, verdict >>);
      task := None; answer[self] := "none";
      goto Read;
    end if;
  end with;
Create: \* The commit point of the batch. Where another was faster, it is judged again.
  if Len(log[task.part]) = place \/ ~On("create at the judged offset") then
    await Len(log[task.part]) < Places;
    tell(<< self, "creates its batch of epoch", task.epoch, "at offset", Len(log[task.part]) >>);
    if ~MayCreate(task.part, task.epoch) then wrong := "I12: a batch behind its marker, or of no transaction"; end if;
    log[task.part] := Append(log[task.part], [kind |-> "batch", epoch |-> task.epoch]);
    task := None; place := 0; answer[self] := "none";
    goto Read;
  else
    tell(<< self, "loses its create, and judges its batch of epoch", task.epoch, "again" >>);
    place := 0;
    goto Judge;
  end if;
Mark: \* "Ending a transaction" 2: a marker for every named partition, judged at its offset.
  if left = {} \/ ~On("Complete after the markers") then
    tell(<< self, "has all markers of epoch", ending.epoch >>);
    target := None; left := {};
    goto Settle;
  else
    with where \in left, verdict = MarkerJudged(self, where, ending.epoch) do
      if verdict = "done" /\ ghost[self] # NoEpoch /\ On("done only from a verified tail") then
        tell(<< self, "looks again, and drops an old state" >>);
        ghost[self] := NoEpoch; base[self] := forgotten; answer[self] := "none";
        goto Mark;
      elsif verdict = "done" then
        tell(<< self, "finds the marker of epoch", ending.epoch, "done in", where >>);
        left := left \ {where}; answer[self] := "none";
        goto Mark;
      elsif verdict = "ask" then
        tell(<< self, "must ask the coordinator first for its marker of epoch", ending.epoch >>);
        answer[self] := "asked";
        goto Ask;
      else
        await Len(log[where]) < Places /\ ghost[self] = NoEpoch;
        tell(<< self, "judges its marker of epoch", ending.epoch, "at offset", Len(log[where]) >>);
        target := where; place := Len(log[where]);
        goto CreateMarker;
      end if;
    end with;
  end if;
Ask: \* The item is read after the state that the marker was judged by.
  if IsPrepared(ending.epoch, ending.result) then
    tell(<< self, "reads that the transaction is still prepared at epoch", ending.epoch >>);
    if answer[self] = "asked" then answer[self] := "given"; end if;
    goto Mark;
  else
    tell(<< self, "reads that the transaction of the marker of epoch", ending.epoch, "is past" >>);
    left := {}; ending := None; target := None; answer[self] := "none";
    goto Read;
  end if;
CreateMarker:
  if Len(log[target]) = place \/ ~On("create at the judged offset") then
    await Len(log[target]) < Places;
    tell(<< self, "creates its marker of epoch", ending.epoch, ending.result, "at offset", Len(log[target]) >>);
    if ~MayMark(target, ending.epoch, ending.result) then
      wrong := "I12: a marker that its item does not ask for";
    end if;
    log[target] := Append(log[target], [kind |-> ending.result, epoch |-> ending.epoch]);
    left := left \ {target}; target := None; place := 0; answer[self] := "none";
    goto Mark;
  else
    either
      tell(<< self, "loses the create of its marker of epoch", ending.epoch >>);
      target := None; place := 0;
      goto Mark;
    or
      \* The log start has passed that offset, and the segment there was collected. The process folds its own ghost.
      await Ghosts;
      either
        if On("a marker counts only in the log") then
          tell(<< self, "creates its marker of epoch", ending.epoch, "as a ghost, and looks before it counts" >>);
          ghost[self] := NoEpoch; base[self] := forgotten; answer[self] := "none";
        else
          tell(<< self, "creates its marker of epoch", ending.epoch, "as a ghost, and counts it" >>);
          ghost[self] := ending.epoch; left := left \ {target}; answer[self] := "none";
        end if;
        target := None; place := 0;
        goto Mark;
      or
        tell(<< self, "creates its marker of epoch", ending.epoch, "as a ghost, and its time is over" >>);
        ghost[self] := ending.epoch; target := None; place := 0; left := {}; ending := None;
        task := None; wrote := FALSE; answer[self] := "none";
        goto Read;
      end either;
    end either;
  end if;
Settle: \* "Ending a transaction" 3: the cursor, on its version.
  if ending.cursor /\ cursor.pending # None /\ On("Complete after the cursors")
     /\ (cursor.pending.epoch < ending.epoch \/ ~On("settle only what is older"))
  then
    tell(<< self, "settles the offset that was pending, by", ending.result >>);
    if decided[cursor.pending.epoch] # ending.result then wrong := "one outcome: an offset has another one";
    elsif Settled(ending.epoch, ending.result).settled < cursor.settled then wrong := "I15: an earlier commit wins";
    end if;
    cursor := Settled(ending.epoch, ending.result);
  else
    tell(<< self, "has nothing to settle" >>);
  end if;
Complete: \* "Ending a transaction" 4. Whoever loses this write finds it completed.
  if IsPrepared(ending.epoch, ending.result) \/ ~On("decide on the version that was read") then
    tell(<< self, "writes Complete at epoch", ending.epoch >>);
    write([Emptied(item, "Complete", ending.epoch) EXCEPT !.result = ending.result], self);
  else
    tell(<< self, "finds the transaction of the markers of epoch", ending.epoch, "completed" >>);
  end if;
  ending := None;
  if task = None then goto Read; end if;
Answer: \* END_TXN is answered when all of it is done.
  tell(<< self, "answers the", task.kind, "of epoch", task.epoch >>);
  reply();
  goto Read;
end process;

process world = "the world"
begin
World:
  either with r \in Requests, d = Decide(item, r) do
    \* A request that is never frozen.
    await d.verdict = "write";
    tell(<< "the world", "decides a", r.kind, "request of epoch", r.epoch, "and the item is", d.item.state,
            "at epoch", d.item.epoch >>);
    write(d.item, None);
  end with;
  or with where \in Partitions, d = Decide(item, Request("add", item.epoch, where)) do
    \* An addition, of the instance that has the epoch.
    await d.verdict = "write" /\ item.epoch \in given;
    tell(<< "the world", "names", where, "in the transaction of epoch", item.epoch >>);
    write(d.item, None);
  end with;
  or with where \in item.named, epoch \in {item.epoch, item.epoch - 1} do
    \* A batch that was admitted while the transaction was Ongoing. It may come late, before the marker.
    await Len(log[where]) < Places /\ MayCreate(where, epoch);
    tell(<< "the world", "creates a batch of epoch", epoch, "at offset", Len(log[where]) >>);
    log[where] := Append(log[where], [kind |-> "batch", epoch |-> epoch]);
  end with;
  or with where \in item.named do
    \* A marker.
    await item.state = "Prepare" /\ Len(log[where]) < Places /\ MayMark(where, item.epoch, item.result);
    tell(<< "the world", "creates a marker of epoch", item.epoch, item.result, "at offset", Len(log[where]) >>);
    log[where] := Append(log[where], [kind |-> item.result, epoch |-> item.epoch]);
  end with;
  or
    await item.state = "Prepare" /\ ~IsSettled(item.epoch);
    tell(<< "the world", "settles the offset that was pending, by", item.result >>);
    if Settled(item.epoch, item.result).settled < cursor.settled then wrong := "I15: an earlier commit wins"; end if;
    cursor := Settled(item.epoch, item.result);
  or
    \* A finisher that has seen each part done.
    await item.state = "Prepare" /\ IsSettled(item.epoch);
    await \A where \in item.named :
            Has(log[where], item.result, item.epoch)
              \/ (~On("a marker where nothing is open, too") /\ Open(log[where]) = NoEpoch);
    tell(<< "the world", "writes Complete at epoch", item.epoch >>);
    write(Completed(item), None);
  or with where \in Partitions, position \in forgotten[where] + 1 .. Len(log[where]) do
    \* The sweeper forgets what a partition knows of the producer, after a lapse: the item, which says what was so at some
    \* position. Nothing was open there.
    await Open(SubSeq(log[where], 1, position)) = NoEpoch;
    tell(<< "the world", "forgets the producer in", where, "up to offset", position >>);
    forgotten[where] := position;
  end with;
  or with p \in Processes do
    \* A process adopts a partition's state anew, or prunes its memory: it reads again what the partition knows.
    await base[p] # forgotten \/ ghost[p] # NoEpoch;
    tell(<< p, "adopts the state anew" >>);
    base[p] := forgotten; ghost[p] := NoEpoch;
    if On("a new state voids an admission") then answer[p] := "none"; end if;
  end with;
  or with where \in Partitions, epoch \in given do
    \* A plain batch of the producer id, with an epoch that has lapsed here, or is the present one.
    await Plain /\ Len(log[where]) < Places /\ ~Has(log[where], "plain", epoch);
    await Open(log[where]) = NoEpoch \/ ~On("no plain batch amid a transaction");
    tell(<< "the world", "creates a plain batch of epoch", epoch, "at offset", Len(log[where]) >>);
    if On("a lowered epoch voids an admission") then
      answer := [p \in Processes |-> IF Known(p, where) > epoch THEN "none" ELSE answer[p]];
    end if;
    log[where] := Append(log[where], [kind |-> "plain", epoch |-> epoch]);
  end with;
  or
    \* An offset is sent in a transaction.
    await item.state = "Ongoing" /\ cursor.sent < Commits;
    tell(<< "the world", "leaves an offset pending in the transaction of epoch", item.epoch >>);
    cursor := [cursor EXCEPT !.sent = @ + 1, !.pending = [epoch |-> item.epoch, number |-> cursor.sent + 1]];
    write([item EXCEPT !.cursor = TRUE], None);
  or
    \* A commit that is in force at once.
    await cursor.sent < Commits;
    tell(<< "the world", "commits to the cursor at once" >>);
    cursor := [cursor EXCEPT !.sent = @ + 1, !.settled = cursor.sent + 1];
  end either;
  goto World;
end process;
end algorithm; *)
\* BEGIN TRANSLATION
\* END TRANSLATION

\* Where a create goes that was judged. Once another was faster there, it does not matter at which offset.
Where(p) == IF target[p] # None THEN target[p] ELSE IF task[p] # None THEN task[p].part ELSE None
IsNext(p) == IF Where(p) = None THEN FALSE ELSE place[p] = Len(log[Where(p)])
View == << item, log, forgotten, cursor, base, ghost, answer, read, decided, given, wrong, pc, task, wrote, ending, left,
           target, [p \in Processes |-> IsNext(p)] >>

\* I10, I12, I13, I15, and what an answer says: each write and each answer is right.
I10_I12_I13_I15_AnswersAreTrue == wrong = ""

\* I11: where the state has a producer at e, no transaction of it below e is open.
I11_NothingOlderIsOpen ==
  \A where \in Partitions : Open(log[where]) # NoEpoch => LastOf(log[where]) <= Open(log[where])

\* I12: what is open is named by its item, Ongoing at e or prepared at e + 1. So nothing stays open for ever.
I12_OpenIsNamed ==
  \A where \in Partitions :
    LET open == Open(log[where]) IN
    open # NoEpoch => /\ where \in item.named
                      /\ \/ item.state = "Ongoing" /\ item.epoch = open
                         \/ item.state = "Prepare" /\ item.epoch = open + 1

\* I12: no marker lowers a producer's epoch.
I12_NoMarkerLowers ==
  \A where \in Partitions : \A j \in 1 .. Len(log[where]) : \A i \in 1 .. j - 1 :
    IsMarker(log[where][j]) => log[where][i].epoch <= log[where][j].epoch

\* I12: a marker is appended once, but where the partition has forgotten the producer, or a plain batch has lowered its
\* epoch.
I12_MarkerOnce ==
  \A where \in Partitions : \A j \in 1 .. Len(log[where]) : \A i \in 1 .. j - 1 :
    IsMarker(log[where][j]) /\ log[where][i] = log[where][j] =>
      i <= forgotten[where] \/ (\E k \in i .. j : log[where][k].kind = "plain")

\* I13: no transaction begins at an epoch that was given to nobody.
I13_OngoingIsGiven == item.state = "Ongoing" => item.epoch \in given

\* I14: a pending offset is named by an item that is Ongoing or prepared.
I14_PendingIsNamed ==
  cursor.pending # None =>
    /\ item.cursor
    /\ \/ item.state = "Ongoing" /\ item.epoch = cursor.pending.epoch
       \/ item.state = "Prepare" /\ item.epoch = cursor.pending.epoch + 1

\* One outcome: every marker says what was decided.
OneOutcome ==
  \A where \in Partitions : \A i \in 1 .. Len(log[where]) :
    IsMarker(log[where][i]) => decided[log[where][i].epoch - 1] = log[where][i].kind

Symmetry == Permutations(Processes) \union Permutations(Partitions)
=============================================================================
