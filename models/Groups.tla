------------------------------- MODULE Groups -------------------------------
(* How the members of a group share out partitions: joins, heartbeats, what is asked for and released, removals, and the
   commits of members.
   Protocol: "Groups"; invariants G1 to G6.

   Read the algorithm like a program. Each label is one atomic step, with one store call at most. Between two labels a
   process may be frozen, for any time, or die. Where more than one thing may happen next, all are tried.

   The process `slow` serves one request step by step: a late heartbeat, a removal or a commit. In the world around it
   the clients work, and other processes serve any request at once: what they write is conditional on what they read, so
   it is as if they read at the moment of the write. A client waits for one answer at a time. It may give a request up
   and send another one; the first is then late, and is served at any time, or never.
   A target is any share-out at all. So assignors, topics that come and go, and subscriptions that change are in it.
   A lease lapses whenever it likes, also of a member that lives.

   Left out: versions as numbers (a slow process knows
   whether an item was written since it was read); classic groups; principals.

   `story` says what each step does, for those who read a history. It decides nothing. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Members,     \* ids; one client each, which may join again under its id
          Partitions,
          Slow,        \* processes that are followed step by step
          Changes,     \* of the group, with joins of members that it has, at most
          Lates,       \* requests that come late, at most
          Commits,     \* whether members commit
          Leaves,      \* whether members leave
          Instances,   \* whether a member may take the place of another one
          Silent,      \* whether a heartbeat may be without a report
          Goes,        \* whether a partition may be in no subscription
          Serves,      \* whether G6 is looked at, which takes most of the time
          None,
          Off          \* the guards that are switched off, to see what breaks without them

Guards == {"take what no other item holds", "read the members after the group", "take on the group's version",
           "a member on the version that was read", "release only what was reported",
           "a report at the present epoch alone", "each change of what is shown raises the epoch",
           "a join releases nothing", "a commit on the member's version", "a commit no earlier than since",
           "a removal on the member's version", "a removal deletes the item", "a removal lifts the epoch",
           "a leave lifts the epoch", "a new target raises the epoch"}
ASSUME Off \subseteq Guards
On(guard) == guard \notin Off

Max(a, b) == IF a > b THEN a ELSE b
Group == "group"  \* the name of its item
\* An item of a member: `since` of each partition is the member epoch at which it was taken, 0 if it is not held.
Holds(item) == IF item = None THEN {} ELSE {p \in Partitions : item.since[p] > 0}
Shown(item) == Holds(item) \ item.asked
New(epoch) == [epoch |-> epoch, previous |-> 0, since |-> [p \in Partitions |-> 0], asked |-> {}]
Targets(members) == [Partitions -> IF members = {} \/ Goes THEN members \union {None} ELSE members]

\* What a heartbeat at the present epoch makes of its member's item.
\* `owned`: what the client reports to work on; `elsewhere`: what other members' items hold.
Reconciled(group, item, m, owned, elsewhere) ==
  LET stopped == IF On("release only what was reported") THEN IF owned = None THEN {} ELSE item.asked \ owned
                 ELSE item.asked
      held == Holds(item) \ stopped
      asked == {p \in held : group.target[p] # m}
      taken == IF asked # {} THEN {}
               ELSE {p \in Partitions \ held : group.target[p] = m
                                               /\ (p \notin elsewhere \/ ~On("take what no other item holds"))}
      is_changed == (held \union taken) \ asked # Shown(item)
      is_raised == is_changed /\ (asked = {} \/ On("each change of what is shown raises the epoch"))
      epoch == IF is_raised THEN Max(item.epoch + 1, group.epoch) ELSE item.epoch
  IN  [epoch |-> epoch, previous |-> IF is_raised THEN item.epoch ELSE item.previous, asked |-> asked,
       since |-> [p \in Partitions |-> IF p \in taken THEN epoch ELSE IF p \in held THEN item.since[p] ELSE 0]]

\* What a join makes of the item of a member that the group has.
Rejoined(group, item) ==
  LET epoch == Max(item.epoch + 1, group.epoch)
      held == IF On("a join releases nothing") THEN Holds(item) ELSE Shown(item)
  IN  [epoch |-> epoch, previous |-> item.epoch, asked |-> item.asked \intersect held,
       since |-> [p \in Partitions |-> IF p \in held THEN epoch ELSE 0]]

\* G6: what becomes of a state if each member of the group sends a heartbeat and is answered, in some order.
Out == [epoch |-> 0, works |-> {}, is_cut |-> FALSE]
Beaten(s, m) ==
  LET c == s.clients[m]
      i == s.items[m]
      new == IF c.epoch = 0 THEN Rejoined(s.group, i)
             ELSE IF c.epoch # i.epoch THEN i
             ELSE Reconciled(s.group, i, m, c.works, UNION {Holds(s.items[n]) : n \in Members \ {m}})
  IN  IF m \notin s.group.members \/ i = None THEN s
      ELSE IF c.epoch \notin {0, i.epoch, i.previous} THEN [s EXCEPT !.clients[m] = Out]
      ELSE [s EXCEPT !.items[m] = new, !.clients[m] = [c EXCEPT !.epoch = new.epoch, !.works = Shown(new)]]
RECURSIVE Round(_, _)
Round(s, order) == IF order = << >> THEN s ELSE Round(Beaten(s, Head(order)), Tail(order))
RECURSIVE Rounds(_, _, _)
Rounds(s, order, n) == IF n = 0 THEN s ELSE Rounds(Round(s, order), order, n - 1)
Orders == {order \in [1 .. Cardinality(Members) -> Members] : \A a, b \in DOMAIN order : order[a] = order[b] => a = b}
IsServed(s) ==
  \A p \in Partitions, m \in Members :
    /\ s.group.target[p] = m <=> p \in Holds(s.items[m])
    /\ s.group.target[p] = m => /\ p \notin s.items[m].asked
                                /\ s.clients[m].epoch = s.items[m].epoch /\ p \in s.clients[m].works
RoundsToServe == 5

(* --algorithm Groups
variables
  group = [epoch |-> 0, members |-> {}, target |-> [p \in Partitions |-> None]],
  items = [m \in Members |-> None],
  clients = [m \in Members |-> Out],       \* the epoch that each was told, what it works on, and the truth:
                                           \* whether its member was removed, and it has not heard of it
  answers = [m \in Members |-> None],      \* on their way to the client, which waits for them
  late = {},                               \* requests that nobody waits for
  jobs = [s \in Slow |-> None],
  current = [s \in Slow |-> {}],           \* the items that it read, and that were not written since
  tokens = [p \in Partitions |-> 0],       \* the truth: the greatest token so far
  left = [changes |-> Changes, lates |-> Lates],
  wrong = "",                              \* which step was not right
  story = << >>;                           \* the step just made, in words

define
  IsIn(m) == clients[m].epoch > 0 \/ answers[m] # None
  Elsewhere(m) == UNION {Holds(items[n]) : n \in Members \ {m}}
  \* A request of the client itself, as it would send it now.
  Own == {[kind |-> IF clients[m].epoch = 0 THEN "join" ELSE "heartbeat", of |-> m, epoch |-> clients[m].epoch,
           owned |-> IF is_silent THEN None ELSE clients[m].works, is_late |-> FALSE] :
           m \in {n \in Members : answers[n] = None}, is_silent \in {FALSE, Silent}}
         \union {[kind |-> "leave", of |-> m, epoch |-> clients[m].epoch, owned |-> {}, is_late |-> FALSE] :
                 m \in {n \in Members : Leaves /\ answers[n] = None /\ clients[n].epoch > 0}}
  \* A commit that was under way when its partition was given up, or when its member was ended, is of a time that is
  \* past.
  Aged(stored) ==
    [s \in Slow |-> IF jobs[s] # None /\ jobs[s].kind = "commit" /\ jobs[s].partition \notin Holds(stored[jobs[s].of])
                    THEN [jobs[s] EXCEPT !.is_past = TRUE] ELSE jobs[s]]
  \* What a write that ends member m makes of the group.
  Ended(m, is_lifted, target) ==
    [epoch |-> IF is_lifted /\ items[m] # None THEN Max(group.epoch, items[m].epoch) + 1 ELSE group.epoch + 1,
     members |-> group.members \ {m}, target |-> target]
end define;

macro tell(words) begin
  story := words;
end macro;

macro write(stored, keys) begin
  items := stored;
  jobs := Aged(stored);
  current := [s \in Slow |-> current[s] \ keys];
end macro;

\* The tokens of what is taken: the group's epoch.
macro take(before, after) begin
  if \E p \in Holds(after) \ Holds(before) : group.epoch <= tokens[p] then
    wrong := "a token is not greater than the one before";
  end if;
  tokens := [p \in Partitions |-> IF p \in Holds(after) \ Holds(before) THEN group.epoch ELSE tokens[p]];
end macro;

macro change() begin
  left.changes := left.changes - 1;
end macro;

process slow \in Slow
begin
Idle:
  either with r \in {one \in late : one.kind = "heartbeat"} do
    tell(<< self, "has a late heartbeat of", r.of, "at epoch", r.epoch, "which works on", r.owned,
            ", and reads the group" >>);
    late := late \ {r};
    jobs[self] := [kind |-> "heartbeat", of |-> r.of, epoch |-> r.epoch, owned |-> r.owned, group |-> group,
                   elsewhere |-> IF On("read the members after the group") THEN {} ELSE Elsewhere(r.of)];
    current[self] := {Group};
    goto Heartbeat;
  end with;
  or with r \in {one \in late : one.kind = "heartbeat"} do
    await ~On("read the members after the group");
    tell(<< self, "has a late heartbeat of", r.of, "at epoch", r.epoch, ", and reads the members first" >>);
    late := late \ {r};
    jobs[self] := [kind |-> "heartbeat", of |-> r.of, epoch |-> r.epoch, owned |-> r.owned, group |-> None,
                   elsewhere |-> Elsewhere(r.of)];
    goto Heartbeat;
  end with;
  or with m \in group.members do
    tell(<< self, "finds the lease of", m, "over" >>);
    jobs[self] := [kind |-> "removal", of |-> m];
    current[self] := {m};
    goto Removal;
  end with;
  or with m \in Members, p \in clients[m].works do
    await Commits;
    tell(<< self, "has a commit of", m, "at epoch", clients[m].epoch, "for", p >>);
    jobs[self] := [kind |-> "commit", of |-> m, partition |-> p, epoch |-> clients[m].epoch,
                   is_past |-> clients[m].is_cut];
    goto Commit;
  end with;
  end either;
Heartbeat: \* Reads the members' items, and decides.
  with job = jobs[self], seen = IF job.group = None THEN group ELSE job.group, item = items[job.of],
       elsewhere = IF job.group # None THEN Elsewhere(job.of) ELSE job.elsewhere do
    if item = None \/ job.of \notin seen.members then
      tell(<< self, "refuses it: no such member" >>);
      jobs[self] := None || current[self] := {};
      goto Idle;
    elsif item.epoch # job.epoch then
      tell(<< self, "refuses it, or takes it for a repeat" >>);
      jobs[self] := None || current[self] := {};
      goto Idle;
    else
      with new = Reconciled(seen, item, job.of, job.owned, elsewhere) do
        tell(<< self, "reads the items, and decides on epoch", new.epoch, ": it holds", Holds(new),
                ", asked for", new.asked >>);
        jobs[self] := [kind |-> "heartbeat", of |-> job.of, new |-> new, takes |-> Holds(new) \ Holds(item)];
        current[self] := (IF job.group = None THEN {Group} ELSE current[self]) \union {job.of};
      end with;
    end if;
  end with;
Write:
  with job = jobs[self] do
    if /\ job.of \in current[self] \/ ~On("a member on the version that was read")
       /\ job.takes = {} \/ Group \in current[self] \/ ~On("take on the group's version") then
      tell(<< self, "writes the item of", job.of, "at epoch", job.new.epoch >>);
      take(items[job.of], job.new);
      with stored = [items EXCEPT ![job.of] = job.new] do
        items := stored;
        jobs := [Aged(stored) EXCEPT ![self] = None];
        current := [s \in Slow |-> IF s = self THEN {} ELSE current[s] \ {job.of}];
      end with;
    else
      tell(<< self, "loses its write" >>);
      jobs[self] := None || current[self] := {};
    end if;
    goto Idle;
  end with;
Removal:
  with m = jobs[self].of do
    if m \notin group.members \/ (m \notin current[self] /\ On("a removal on the member's version")) then
      tell(<< self, "loses its write: the item of", m, "is another one" >>);
      jobs[self] := None || current[self] := {};
    else
      await left.changes > 0;
      with target \in Targets(group.members \ {m}), stored = [items EXCEPT ![m] = None] do
        tell(<< self, "removes", m, "; the target is", target >>);
        if m \notin current[self] then wrong := "a member is removed that renewed its lease"; end if;
        group := Ended(m, On("a removal lifts the epoch"), target);
        clients[m].is_cut := IsIn(m);
        items := stored;
        jobs := [Aged(stored) EXCEPT ![self] = None];
        current := [s \in Slow |-> IF s = self THEN {} ELSE current[s] \ {m, Group}];
        change();
      end with;
    end if;
    goto Idle;
  end with;
Commit:
  with job = jobs[self], item = items[job.of] do
    if /\ job.partition \in Holds(item)
       /\ item.since[job.partition] <= job.epoch \/ ~On("a commit no earlier than since")
       /\ job.epoch <= item.epoch then
      tell(<< self, "reads the item of", job.of, ", which holds", job.partition >>);
      current[self] := {job.of};
    else
      tell(<< self, "refuses the commit of", job.of, "for", job.partition >>);
      jobs[self] := None || current[self] := {};
      goto Idle;
    end if;
  end with;
Land:
  with job = jobs[self] do
    if job.of \notin current[self] /\ On("a commit on the member's version") then
      tell(<< self, "loses its write, and reads again" >>);
      goto Commit;
    else
      tell(<< self, "moves the cursor of", job.partition, "for", job.of >>);
      if \/ job.is_past \/ job.partition \notin Holds(items[job.of])
         \/ job.epoch < items[job.of].since[job.partition] then
        wrong := "a commit takes effect when its time is past";
      end if;
      jobs[self] := None || current[self] := {};
      goto Idle;
    end if;
  end with;
end process;

process world = "the world"
begin
World:
  either with r \in late \union Own, m = r.of, item = items[m] do
    \* A request is served. The answer goes on its way, if somebody waits for it.
    if r.is_late then late := late \ {r}; end if;
    if r.kind = "join" /\ (item = None \/ m \notin group.members) then
      await left.changes > 0;
      with target \in Targets(group.members \union {m}), epoch = group.epoch + 1,
           stored = [items EXCEPT ![m] = New(epoch)] do
        tell(<< IF r.is_late THEN "a late join of" ELSE "", m, "joins at epoch", epoch, "; the target is", target >>);
        group := [epoch |-> epoch, members |-> group.members \union {m}, target |-> target];
        write(stored, {m, Group});
        if ~r.is_late then
          answers[m] := [epoch |-> epoch, shown |-> {}];
          clients[m].is_cut := FALSE;
        end if;
        change();
      end with;
    elsif r.kind = "join" then
      await left.changes > 0;
      with new = Rejoined(group, item), stored = [items EXCEPT ![m] = new] do
        tell(<< IF r.is_late THEN "a late join of" ELSE "", m, "joins again, at epoch", new.epoch >>);
        write(stored, {m});
        if ~r.is_late then
          answers[m] := [epoch |-> new.epoch, shown |-> Shown(new)];
          clients[m].is_cut := FALSE;
        end if;
        change();
      end with;
    elsif r.kind = "leave" then
      \* Its client has stopped, unless the leave is late, and it has joined again since.
      clients[m] := IF ~r.is_late THEN Out ELSE [clients[m] EXCEPT !.is_cut = @ \/ (m \in group.members /\ IsIn(m))];
      if m \in group.members then
        await left.changes > 0;
        with target \in Targets(group.members \ {m}), stored = [items EXCEPT ![m] = None] do
          tell(<< IF r.is_late THEN "a late leave of" ELSE "", m, "leaves; the target is", target >>);
          group := Ended(m, On("a leave lifts the epoch"), target);
          write(stored, {m, Group});
          change();
        end with;
      end if;
    elsif \/ item = None \/ m \notin group.members
          \/ r.epoch \notin {item.epoch, item.previous} /\ On("a report at the present epoch alone") then
      tell(<< IF r.is_late THEN "a late heartbeat of" ELSE "", m, "at epoch", r.epoch, "is refused" >>);
      if ~r.is_late then answers[m] := [epoch |-> 0, shown |-> {}]; end if;
    else
      with new = IF r.epoch = item.epoch \/ ~On("a report at the present epoch alone")
                 THEN Reconciled(group, item, m, r.owned, Elsewhere(m)) ELSE item,
           stored = [items EXCEPT ![m] = new] do
        tell(<< IF r.is_late THEN "a late heartbeat of" ELSE "", m, "at epoch", r.epoch, "which works on", r.owned,
                "comes to epoch", new.epoch, ": it holds", Holds(new), ", asked for", new.asked >>);
        take(item, new);
        write(stored, {m});
        if ~r.is_late then
          answers[m] := [epoch |-> new.epoch, shown |-> Shown(new)];
          clients[m].is_cut := FALSE;
        end if;
      end with;
    end if;
  end with;
  or with m \in {n \in Members : answers[n] # None},
          stops \in (IF clients[m].works \subseteq answers[m].shown THEN {TRUE} ELSE BOOLEAN) do
    \* The client hears its answer. It stops at once what it is not shown, or only later.
    if answers[m].epoch = 0 then
      tell(<< m, "is told that it is refused, and stops all work" >>);
      clients[m] := Out;
    else
      with works = answers[m].shown \union (IF stops THEN {} ELSE clients[m].works) do
        tell(<< m, "is told epoch", answers[m].epoch, "and works on", works >>);
        clients[m] := [clients[m] EXCEPT !.epoch = answers[m].epoch, !.works = works];
      end with;
    end if;
    answers[m] := None;
  end with;
  or with m \in {n \in Members : answers[n] # None} do
    tell(<< m, "loses its answer" >>);
    if clients[m].epoch = 0 then clients[m] := Out; end if;
    answers[m] := None;
  end with;
  or with r \in Own do
    \* A request that its client gives up. One that leaves has stopped.
    await left.lates > 0;
    tell(<< "a", r.kind, "of", r.of, "at epoch", r.epoch, "which works on", r.owned, "is late" >>);
    late := late \union {[r EXCEPT !.is_late = TRUE]};
    if r.kind = "leave" then clients[r.of] := Out; end if;
    left.lates := left.lates - 1;
  end with;
  or with m \in {n \in Members : clients[n].epoch > 0} do
    \* Its process begins anew, or its lease is over by its own clock.
    await left.changes > 0;
    tell(<< m, "stops all work, and will join again" >>);
    clients[m] := Out; answers[m] := None;
  end with;
  or with m \in group.members, target \in Targets(group.members \ {m}), stored = [items EXCEPT ![m] = None] do
    await left.changes > 0;
    tell(<< m, "is removed; the target is", target >>);
    group := Ended(m, On("a removal lifts the epoch"), target);
    clients[m].is_cut := IsIn(m);
    if On("a removal deletes the item") then write(stored, {m, Group}); else write(items, {Group}); end if;
    change();
  end with;
  or with m \in group.members,
          n \in {one \in Members : clients[one].epoch = 0 /\ items[one] = None /\ answers[one] = None} do
    \* Both have the same instance id, and the older one is away, or its lease is over: a removal and a join in one
    \* write.
    await Instances /\ left.changes > 0;
    with target = [p \in Partitions |-> IF group.target[p] = m THEN n ELSE group.target[p]],
         ended = Ended(m, On("a removal lifts the epoch"), target),
         stored = [items EXCEPT ![m] = None, ![n] = New(ended.epoch)] do
      tell(<< n, "takes the place of", m, "at epoch", ended.epoch >>);
      group := [ended EXCEPT !.members = @ \union {n}];
      clients := [clients EXCEPT ![m].is_cut = IsIn(m), ![n].is_cut = FALSE];
      answers[n] := [epoch |-> ended.epoch, shown |-> {}];
      write(stored, {m, n, Group});
      change();
    end with;
  end with;
  or with target \in Targets(group.members) \ {group.target} do
    await left.changes > 0;
    tell(<< "the target becomes", target >>);
    group := [group EXCEPT !.epoch = IF On("a new target raises the epoch") THEN @ + 1 ELSE @, !.target = target];
    current := [s \in Slow |-> current[s] \ {Group}];
    change();
  end with;
  end either;
  goto World;
end process;
end algorithm; *)
\* BEGIN TRANSLATION
\* END TRANSLATION

View == << group, items, clients, answers, late, jobs, current, tokens, left, wrong, pc >>

\* G1: at any moment at most one member's item holds a partition.
G1_OneItemHoldsIt == \A m, n \in Members : m # n => Holds(items[m]) \intersect Holds(items[n]) = {}

\* G2: a commit as a member takes effect only while that member holds the partition, since no later epoch than the
\* commit names, and in the same holding in which it was sent.
G2_CommitsAreOfTheHolder == wrong # "a commit takes effect when its time is past"

\* G3: what a client works on is held by its member's item, unless that member was removed, and the client has not
\* heard of it. So two clients believe that they have a partition only if one of them was removed, and has not heard
\* of it.
G3_BelievesWhatItHolds == \A m \in Members : clients[m].is_cut \/ clients[m].works \subseteq Holds(items[m])

\* G4: what holds a partition is the item of a member of the group.
G4_HeldByMembers == \A m \in Members : Holds(items[m]) # {} => m \in group.members

\* G5: a member is removed only at the version at which its lease was judged: one that renewed it stays.
G5_RemovedAsJudged == wrong # "a member is removed that renewed its lease"

\* G6: if each member sends a few heartbeats and nothing else comes, each partition is held by the member at which the
\* target is, and its client is told.
G6_ComesToItsTarget ==
  LET state == [group |-> group, items |-> items, clients |-> clients]
  IN  Serves => \A order \in Orders : IsServed(Rounds(state, order, RoundsToServe))

\* Of one partition each token is greater than the one before it, whoever has it.
TokensGrow == wrong # "a token is not greater than the one before"

Symmetry == Permutations(Members) \union Permutations(Partitions) \union Permutations(Slow)
=============================================================================
