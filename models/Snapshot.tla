------------------------------ MODULE Snapshot ------------------------------
(* How a topic lives in several regions: records are pulled from region to region, a snapshot shows one region which
   offsets of the others lie behind one of its own, and by snapshots a subscription's cursor moves in all of them.
   Protocol: "Own numbers and positions", "Pulling", "Snapshots", "Cursors in several regions"; invariants I17, I18,
   I20, I21 and I22.

   There are three regions, and one partition in each. As in the protocol, a asks for snapshots, and then sends UPDATEs.
   The region that the protocol calls x, which answers, is b or c. Each of the three is an origin o. (`--deep` lets more
   than one region ask.)

   Read the algorithm like a program. Each region is a process. In each step it appends one segment to its log, judged
   by the log below it (Append.tla shows that this is so, whichever of its functions are frozen, or die). All delays,
   cuts and orders are tried, because any region, and any link, may do nothing for any time.

   A log is a sequence of entries, and an offset is how many entries lie below. The state at a log's end is folded in the
   step that appends, as the code folds it: `taken` (the protocol's `origins`), `asked`, `unanswered`, `snapshots`.

   Left out: transactions and aborted records, so every appended record is committed; sizes and several batches in a
   segment; scan notes and leases, which save work; a suspended region's records from a third one (I19); batches that are
   refused and then skipped; regions that break the rules; a log that was restored and written again (another history);
   how often REQUESTs come, and which snapshot is final (I24). A consumer acknowledges all up to an offset, and never
   seeks.
   A region that comes late is one that has pulled nothing until the others have trimmed their logs.
   A marker that does not concern a region is not put into its log, because it would change nothing there but offsets.
   An UPDATE is read by the other regions at any time after it was sent, also before its link would bring it.

   `story` says what each step does, for those who read a history. It decides nothing. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS OfA, OfB, OfC,  \* how many records each region produces
          OfNewLives,     \* and how many in a second life of its topic
          Requests,       \* how many REQUESTs there are
          Asking,         \* the regions that ask for snapshots
          Asks,           \* the sets of regions that a REQUEST may ask: others are suspended, removed, or not known
          Stopped,        \* links that bring nothing: "cb" if c takes nothing from b
          Updated,        \* the regions that follow UPDATEs
          Reading,        \* the regions that have a consumer
          Anew,           \* the regions whose topic may be deleted and created again, once
          Trimmed,        \* the regions whose log start moves, once in each life
          Restored,       \* those of Anew whose stores may be restored from before that: the earlier life is back
          None,
          Off             \* the guards that are switched off, to see what they are for

Guards == {"only from the position in force", "a new life from its start", "no earlier life again",
           "a gap stops the link", "wait for the counts", "of the same life", "from says what is missing",
           "from says what never came", "the first answer counts", "the position of the REQUEST",
           "what retention passed is not sent", "a position counts in its life", "no farther than was given",
           "forward only", "not over an earlier life", "not over what the sender lacked"}
ASSUME Off \subseteq Guards
On(guard) == guard \notin Off

Regions == {"a", "b", "c"}
Records(region, life) ==
  IF life = 2 THEN OfNewLives ELSE CASE region = "a" -> OfA [] region = "b" -> OfB [] region = "c" -> OfC
Links == {<<t, s>> \in Regions \X Regions : t /= s /\ t \o s \notin Stopped}  \* target, source: the target pulls
Max(i, j) == IF i > j THEN i ELSE j

\* A record is named by its origin, the life of the origin's topic, and its own number: the same in every region.
Record(o, life, n) == [kind |-> "record", of |-> o, life |-> life, n |-> n]
IsOf(entry, o, life) == entry.kind = "record" /\ entry.of = o /\ entry.life = life
NumbersOf(log, o, life) == LET Test(entry) == IsOf(entry, o, life) IN SelectSeq(log, Test)
OwnBelow(log, o, life, offset) == Cardinality({i \in 1 .. Len(log) : i <= offset /\ IsOf(log[i], o, life)})
RecordsBelow(log, offset) == {log[i] : i \in {i \in 1 .. offset : log[i].kind = "record"}}

\* The position of a region in the log of another one: what was taken of it.
\* count: the own number up to which nothing comes any more. last: that of the last record that is here.
\* start: numbers up to it are not here, because the region came late, or skipped a gap. former: the lives before.
NothingTaken == [life |-> 0, next |-> 0, count |-> 0, last |-> 0, start |-> 0, former |-> {}]

\* One life of a topic in one region: its log and log start, all that the log says, and the subscription's mark.
NewTopic(life) ==
  [life |-> life, log |-> << >>, start |-> 0, taken |-> [o \in Regions |-> NothingTaken], lives_from |-> 0,
   asked |-> << >>, unanswered |-> {}, given |-> [r \in Regions |-> 0], snapshots |-> {}, mark |-> 0]

---------------------------------------------------------------------------------------------------------------------
(* Snapshots: when all that the answers had is here, too. *)

\* What an answer had of third regions. Of the asker's own records it had those below the REQUEST.
Had(asked, x) == asked.answers[x].had
Answered(asked) == \A x \in asked.regions : asked.answers[x] /= None

\* The third regions for which L does not wait: they were not asked, and no record of them is here. Of each, the lives
\* and numbers that the answers name.
Named(asked, o) == {Had(asked, x)[o] : x \in {x \in asked.regions : Had(asked, x)[o].n > 0}}
NeverHere(asked, taken) ==
  {o \in Regions \ {asked.by} : /\ o \notin asked.regions /\ taken[o].count = 0 /\ Named(asked, o) /= {}
                                /\ Cardinality({named.life : named \in Named(asked, o)}) = 1}
NeverCame(asked, o) == CHOOSE named \in Named(asked, o) : \A other \in Named(asked, o) : other.n <= named.n

Has(taken, had) ==
  had.n = 0 \/ (taken.count >= had.n /\ (taken.life = had.life \/ ~On("of the same life")))
IsMatched(asked, taken) ==
  /\ Answered(asked)
  /\ \A x \in asked.regions, o \in Regions \ {asked.by} :
       o = x \/ o \in NeverHere(asked, taken) \/ Has(taken[o], Had(asked, x)[o]) \/ ~On("wait for the counts")
From(asked, taken) ==
  [o \in Regions |->
    IF o \in NeverHere(asked, taken)
    THEN IF On("from says what never came") THEN NeverCame(asked, o) ELSE [life |-> 0, n |-> 0]
    ELSE [life |-> taken[o].life, n |-> IF On("from says what is missing") THEN taken[o].start ELSE 0]]

\* A topic at the end of a segment: L of each REQUEST whose answers are matched there.
Reached(topic) ==
  [topic EXCEPT !.asked = [i \in DOMAIN topic.asked |->
    LET asked == topic.asked[i] IN
    IF asked.local = None /\ IsMatched(asked, topic.taken)
    THEN [asked EXCEPT !.local = Len(topic.log), !.from = From(asked, topic.taken)]
    ELSE asked]]
Appended(topic, entry) == Reached([topic EXCEPT !.log = Append(@, entry)])

---------------------------------------------------------------------------------------------------------------------
(* Pulling: what comes next from a source, and what the target's log says once it is appended there. *)

Matters(entry, target, source) ==
  entry.of = source /\ \/ entry.kind = "record"
                       \/ entry.kind = "REQUEST" /\ target \in entry.regions
                       \/ entry.kind = "RESPONSE" /\ target = entry.to
IsGap(position, answer, source) ==
  /\ position.life = answer.life /\ position.next < answer.start
  /\ position.count < OwnBelow(answer.log, source, answer.life, answer.start)
InLife(position, answer) ==
  position.life = answer.life \/ (position.life /= 0 /\ ~On("a new life from its start"))
Begins(position, answer) == IF InLife(position, answer) THEN Max(position.next, answer.start) ELSE answer.start
\* Where in the source's log the next entry is that says anything to the target. With the guard, exactly one: what a
\* frozen function took from an earlier position is not let in.
NextOnes(position, answer, target, source) ==
  LET all == {i \in 1 .. Len(answer.log) : Matters(answer.log[i], target, source)}
      after == {i \in all : i > Begins(position, answer)}
      first == {i \in after : \A j \in after : i <= j}
  IN IF On("only from the position in force") \/ position.life /= answer.life
     THEN first ELSE first \union {i \in all : i <= position.next}
Moved(position, answer, source, at) ==
  LET entry == answer.log[at]
      is_record == entry.kind = "record"
      is_same == position.life = answer.life
      below == OwnBelow(answer.log, source, answer.life, answer.start)
      count == IF is_record THEN entry.n ELSE IF is_same THEN position.count ELSE below
  IN [life |-> answer.life, next |-> at, count |-> count,
      last |-> IF is_record THEN count ELSE IF is_same THEN position.last ELSE 0,
      start |-> IF is_same THEN position.start ELSE IF is_record THEN count - 1 ELSE count,
      former |-> IF is_same \/ position.life = 0 THEN position.former ELSE position.former \union {position.life}]

\* What was here of third regions: the last number of each that is here.
WasHere(taken) == [o \in Regions |-> [life |-> taken[o].life, n |-> taken[o].last]]
WithRequest(topic, request) ==
  [topic EXCEPT !.unanswered =
    @ \union {[of |-> request.of, id |-> request.n, position |-> Len(topic.log), had |-> WasHere(topic.taken)]}]
WithResponse(topic, response) ==
  [topic EXCEPT !.asked = [i \in DOMAIN topic.asked |->
    LET asked == topic.asked[i] IN
    IF /\ asked.id = response.n /\ response.of \in asked.regions
       /\ asked.answers[response.of] = None \/ ~On("the first answer counts")
    THEN [asked EXCEPT !.answers[response.of] =
           [life |-> response.life, position |-> response.position, had |-> response.had]]
    ELSE asked]]
WithMarker(topic, entry) ==
  CASE entry.kind = "REQUEST" -> WithRequest(topic, entry) [] entry.kind = "RESPONSE" -> WithResponse(topic, entry)
    [] OTHER -> topic
Taken(topic, source, answer, at) ==
  LET known == topic.taken[source]
      entry == answer.log[at]
      ends_life == known.life /= 0 /\ known.life /= answer.life /\ known.count > 0
      marked == WithMarker(topic, entry)
  IN Reached([marked EXCEPT !.log = Append(@, entry), !.taken[source] = Moved(known, answer, source, at),
                            !.lives_from = IF ends_life THEN Len(topic.log) ELSE @])
Skipped(topic, source, to, number) ==
  Appended([topic EXCEPT !.taken[source].next = to, !.taken[source].count = number, !.taken[source].start = number],
           [kind |-> "SKIP", of |-> None])

---------------------------------------------------------------------------------------------------------------------
(* Cursors: a mark slides over what is no record, and over what the log start has passed. *)

Slid(topic, mark) ==
  LET from == Max(mark, topic.start)
      left == {i \in from .. Len(topic.log) - 1 : topic.log[i + 1].kind = "record"}
  IN IF left = {} THEN Len(topic.log) ELSE CHOOSE i \in left : \A j \in left : i <= j
Passed(topic, mark, local) ==
  /\ Slid(topic, mark) >= local
  /\ mark >= topic.start \/ ~On("what retention passed is not sent")
\* The first record of o at or behind the mark, and below the position, has a number above the UPDATE's `from`.
HadFromOn(topic, o, from, mark, position) ==
  LET at == {i \in mark + 1 .. position : topic.log[i].kind = "record" /\ topic.log[i].of = o}
      first == CHOOSE i \in at : \A j \in at : i <= j
  IN at = {} \/ topic.log[first].n > from
LifeHere(topic, region, o) == IF o = region THEN topic.life ELSE topic.taken[o].life
\* "Applying in x", its four conditions. The mark only moves forward.
MayMove(topic, region, update) ==
  LET to == update.positions[region]
      mark == Slid(topic, topic.mark)
  IN /\ to /= None
     /\ to.life = topic.life \/ ~On("a position counts in its life")
     /\ to.position <= topic.given[update.of] \/ ~On("no farther than was given")
     /\ to.position <= Len(topic.log)
     /\ \/ ~On("forward only") /\ to.position < topic.mark
        \/ /\ mark < to.position
           /\ mark >= topic.lives_from \/ ~On("not over an earlier life")
           /\ \/ ~On("not over what the sender lacked")
              \/ \A o \in Regions : \/ update.from[o].n = 0 \/ update.from[o].life /= LifeHere(topic, region, o)
                                    \/ HadFromOn(topic, o, update.from[o].n, mark, to.position)

(* --algorithm Snapshot
variables
  topic = [r \in Regions |-> NewTopic(1)],
  former = [r \in Regions |-> NewTopic(0)],  \* the life before: of some links, its segments may still be on their way
  requests = 0,    \* how many REQUESTs there were
  updates = {},    \* that were sent
  done = {},       \* the truth: the records that a consumer, in whichever region, has acknowledged
  wrong = "",      \* which move of a mark was not right
  story = << >>;

\* The sentence of a step, for a history.
macro tell(words) begin
  story := words;
end macro;

process region \in Regions
begin
Work:
  either
    \* One of the region's own writers appends a record.
    with n = OwnBelow(topic[self].log, self, topic[self].life, Len(topic[self].log)) + 1 do
      await n <= Records(self, topic[self].life);
      topic[self] := Appended(topic[self], Record(self, topic[self].life, n));
      tell(<< self, "appends its record", n, "at offset", Len(topic[self].log) - 1 >>);
    end with;
  or with source \in {s \in Regions : <<self, s>> \in Links},
          \* What the source answered, now or when the function asked that appends only now. Such an answer may be of an
          \* earlier life, or of an earlier log start. But what it brings is let in only if the position has not moved.
          answer \in {known \in {topic[source], [topic[source] EXCEPT !.start = 0], former[source]} :
                       /\ known.life /= 0
                       /\ known = former[source] => topic[self].taken[source].life <= known.life
                       /\ known.life \notin topic[self].taken[source].former \/ ~On("no earlier life again")} do
    \* "Pulling": the next entry is taken from a source. The create brings it, and moves the position (I18).
    await ~IsGap(topic[self].taken[source], answer, source) \/ ~On("a gap stops the link");
    with at \in NextOnes(topic[self].taken[source], answer, self, source) do
      topic[self] := Taken(topic[self], source, answer, at);
      tell(<< self, "takes", answer.log[at].kind, answer.log[at].n, "of", source, "in life", answer.life,
              "and puts it at offset", Len(topic[self].log) - 1 >>);
    end with;
  end with;
  or with source \in {s \in Regions : IsGap(topic[self].taken[s], topic[s], s)} do
    \* An operator gives up what the source no longer keeps.
    with number = OwnBelow(topic[source].log, source, topic[source].life, topic[source].start) do
      topic[self] := Skipped(topic[self], source, topic[source].start, number);
      tell(<< self, "skips the records of", source, "up to", number >>);
    end with;
  end with;
  or with asks \in {asks \in Asks : self \notin asks} do
    \* "Snapshots" 1: REQUEST.
    await self \in Asking /\ requests < Requests;
    topic[self] := Appended(
      [topic[self] EXCEPT !.asked = Append(@, [id |-> requests + 1, by |-> self, regions |-> asks, local |-> None,
                                               from |-> None, answers |-> [x \in asks |-> None]])],
      [kind |-> "REQUEST", of |-> self, life |-> topic[self].life, n |-> requests + 1, regions |-> asks]);
    requests := requests + 1;
    tell(<< self, "appends REQUEST", requests, "to", asks, "at offset", Len(topic[self].log) - 1 >>);
  end with;
  or with request \in topic[self].unanswered do
    \* "Snapshots" 2: RESPONSE. It says what was here at the REQUEST's offset, however late it comes.
    with position = IF On("the position of the REQUEST") THEN request.position ELSE Len(topic[self].log) do
      topic[self] := Appended(
        [topic[self] EXCEPT !.unanswered = @ \ {request}, !.given[request.of] = Max(@, position)],
        [kind |-> "RESPONSE", of |-> self, life |-> topic[self].life, n |-> request.id, position |-> position,
         to |-> request.of, had |-> request.had]);
      tell(<< self, "appends the RESPONSE to REQUEST", request.id, "at offset", Len(topic[self].log) - 1,
              ": position", position >>);
    end with;
  end with;
  or with i \in {i \in DOMAIN topic[self].asked :
                  /\ topic[self].asked[i].local /= None
                  /\ \A j \in DOMAIN topic[self].asked : j > i => topic[self].asked[j].local = None} do
    \* "Snapshots" 4: SNAPSHOT. It replaces all older REQUESTs. It travels nowhere, so here it takes no offset.
    with asked = topic[self].asked[i] do
      topic[self].snapshots := topic[self].snapshots \union
        {[id |-> asked.id, local |-> asked.local, from |-> asked.from,
          positions |-> [x \in Regions |-> IF x \in asked.regions
                                           THEN [life |-> asked.answers[x].life, position |-> asked.answers[x].position]
                                           ELSE None]]} ||
      topic[self].asked := SubSeq(topic[self].asked, i + 1, Len(topic[self].asked));
      tell(<< self, "completes snapshot", asked.id, "at L", asked.local >>);
    end with;
  end with;
  or with to \in {i \in topic[self].mark + 1 .. Len(topic[self].log) : self \in Reading /\ i > topic[self].start} do
    \* A consumer acknowledges all up to a record. What is acknowledged before a snapshot, or before an UPDATE, could as
    \* well be acknowledged then: nothing asks for marks earlier.
    await topic[self].log[to].kind = "record";
    await topic[self].snapshots /= {} \/ (self \in Updated /\ updates /= {});
    done := done \union RecordsBelow(topic[self].log, to);
    topic[self].mark := to;
    tell(<< self, "acknowledges all below offset", to >>);
  end with;
  or with snapshot \in {one \in topic[self].snapshots : Passed(topic[self], topic[self].mark, one.local)} do
    \* UPDATE: the mark has passed a snapshot.
    await snapshot.id \notin {update.id : update \in updates};
    updates := updates \union
      {[of |-> self, id |-> snapshot.id, positions |-> snapshot.positions, from |-> snapshot.from]};
    tell(<< self, "sends the UPDATE of snapshot", snapshot.id, "with its mark at", topic[self].mark >>);
  end with;
  or with update \in {one \in updates : self \in Updated /\ MayMove(topic[self], self, one)} do
    \* Another region's UPDATE moves the mark here.
    if update.positions[self].position < topic[self].mark then wrong := "I22: a mark goes back"; end if;
    topic[self].mark := update.positions[self].position;
    tell(<< self, "applies the UPDATE of snapshot", update.id, "; its mark moves to", topic[self].mark >>);
  end with;
  or with to \in {i \in 1 .. Len(topic[self].log) : self \in Trimmed /\ topic[self].start = 0} do
    \* Retention, or a trim: the log start moves.
    topic[self].start := to;
    tell(<< self, "trims its log to", to >>);
  end with;
  or
    \* The topic is deleted, and created anew: another life. Its log is empty, and so is its subscription.
    await self \in Anew /\ former[self].life = 0;
    former[self] := topic[self] || topic[self] := NewTopic(2);
    tell(<< self, "creates its topic anew" >>);
  or
    \* An operator restores the region's stores from before that. The earlier life goes on.
    await self \in Restored /\ topic[self].life = 2;
    topic[self] := former[self] || former[self] := topic[self];
    tell(<< self, "is restored from before it created its topic anew" >>);
  end either;
  goto Work;
end process;
end algorithm; *)
\* BEGIN TRANSLATION
\* END TRANSLATION

View == << topic, former, requests, updates, done, wrong >>

---------------------------------------------------------------------------------------------------------------------
Others(r) == Regions \ {r}
Numbers(r, o, life) == LET seq == NumbersOf(topic[r].log, o, life) IN [i \in DOMAIN seq |-> seq[i].n]
\* A present life: it is the origin's, and no later one was taken in x (that matters where the origin was restored).
IsPresent(entry, x) == entry.life = topic[entry.of].life /\ entry.life = LifeHere(topic[x], x, entry.of)

\* I17: of one life of an origin's topic, each record is here once, and in order.
I17_OnceAndInOrder ==
  \A r \in Regions, o \in Regions : \A life \in {topic[o].life, former[o].life} :
    LET numbers == Numbers(r, o, life) IN \A i \in 1 .. Len(numbers) - 1 : numbers[i] < numbers[i + 1]

\* I17: of the life in which its position counts, a region has the records with numbers start + 1 to count.
I17_NoneIsMissing ==
  \A r \in Regions : \A o \in Others(r) :
    LET position == topic[r].taken[o]
        numbers == Numbers(r, o, position.life)
    IN {n \in position.start + 1 .. position.count : \A i \in DOMAIN numbers : numbers[i] /= n} = {}

\* I17: `start` is 0, unless the region came late or skipped a gap: the origin has trimmed what lies up to it.
I17_StartWasTrimmed ==
  \A r \in Regions : \A o \in Others(r) :
    LET position == topic[r].taken[o]
        source == IF position.life = topic[o].life THEN topic[o] ELSE former[o]
    IN position.start <= OwnBelow(source.log, o, source.life, source.start)

\* I18: the position is in the log: the last record that it counts is the last one that is there.
I18_PositionIsInTheLog ==
  \A r \in Regions : \A o \in Others(r) :
    LET position == topic[r].taken[o]
        numbers == Numbers(r, o, position.life)
    IN /\ position.last = IF Len(numbers) = 0 THEN 0 ELSE numbers[Len(numbers)]
       /\ position.last <= position.count /\ position.start <= position.count

\* I20: a position counts in a life: its count is that of the own records below its next offset in that life's log.
I20_PositionIsOfItsLife ==
  \A r \in Regions : \A o \in Others(r) :
    LET position == topic[r].taken[o]
        source == IF position.life = topic[o].life THEN topic[o] ELSE former[o]
    IN position.life = 0 \/ position.count = OwnBelow(source.log, o, source.life, position.next)

\* I21: each record below p_x in x, of a present life, with a number above the snapshot's `from`, lies below L in a.
I21_SnapshotsAreSound ==
  \A a \in Asking, x \in Regions : \A snapshot \in topic[a].snapshots :
    LET at == snapshot.positions[x] IN
    at /= None => (at.life = topic[x].life =>  \* in another life nothing moves by it
      \A entry \in RecordsBelow(topic[x].log, at.position) :
        \/ ~IsPresent(entry, x)
        \/ snapshot.from[entry.of].life = entry.life /\ entry.n <= snapshot.from[entry.of].n
        \/ entry \in RecordsBelow(topic[a].log, snapshot.local))

\* I22: a mark passes nothing that was not offered: a consumer acknowledged it, in this region or in another one.
\* (What the log start has passed is no longer here to be offered.)
I22_NothingIsPassedUnoffered ==
  \A r \in Regions : \A i \in topic[r].start + 1 .. topic[r].mark :
    topic[r].log[i].kind = "record" => topic[r].log[i] \in done

\* I22: an UPDATE moves a mark forward only.
I22_ForwardOnly == wrong = ""
=============================================================================
