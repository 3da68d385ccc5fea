// A simulation of prefix caches behind the gateway, with fake time and a fixed seed: how many tokens of prompts targets have cached, and how
// even their load is, for each balance. Targets leave, lose their caches and return. `npm run bench:affinity` prints the table.
import { choose, firstWithRoom, type LoadBalance, rendezvousOrder } from '../src/upstream/load-balance.ts';

const BALANCES = ['weighted', 'least_requests', 'affinity'] as const satisfies readonly LoadBalance[];

export interface AffinitySettings {
  readonly seed: number;
  readonly targets: number;
  /** Gateways, each of which knows only its own requests in flight. */
  readonly replicas: number;
  /** Simulated seconds. */
  readonly seconds: number;
  /** New conversations per second. */
  readonly arrivals: number;
  /** Seconds between two targets that leave; each is away for half as long. */
  readonly churn: number;
}

export const AFFINITY_SETTINGS: AffinitySettings = {
  seed: 1,
  targets: 8,
  replicas: 3,
  seconds: 3_600,
  arrivals: 5,
  churn: 120,
};

/** What conversations are like: means. */
const TURNS = 8;
const THINK_SECONDS = 20;
const ANSWER_SECONDS = 4;
const SYSTEM_TOKENS = 1_500;
const TURN_TOKENS = 600;
/** Seconds for which a target keeps an unused prefix. */
const CACHE_SECONDS = 300;
const HOLDERS = 200;
/** The share of conversations that all have one `prompt_cache_key`. */
const SHARED = 0.03;

export interface AffinityFigures {
  readonly balance: LoadBalance;
  readonly requests: number;
  /** Cached tokens of all tokens of prompts. */
  readonly hitRate: number;
  /** The same, of what targets would have cached that keep each conversation, never leave and have room for all. */
  readonly ofPerfect: number;
  /** The highest mean load of a target, of the mean of all that are there. */
  readonly maxLoad: number;
}

interface Conversation {
  readonly holder: number;
  readonly key: string;
  readonly prefix: string;
  tokens: number;
}

class Cache {
  readonly #prefixes = new Map<string, { tokens: number; at: number }>();

  /** @returns the cached tokens of a prompt, which is cached now */
  take(now: number, { holder, prefix, tokens }: Conversation): number {
    const system = this.#known(now, `system ${holder}`);
    const own = this.#known(now, prefix);
    this.#prefixes.set(`system ${holder}`, { tokens: SYSTEM_TOKENS, at: now });
    this.#prefixes.set(prefix, { tokens, at: now });
    return Math.min(tokens, Math.max(system, own));
  }

  clear(): void {
    this.#prefixes.clear();
  }

  #known(now: number, prefix: string): number {
    const found = this.#prefixes.get(prefix);
    return found !== undefined && now - found.at <= CACHE_SECONDS ? found.tokens : 0;
  }
}

class Target {
  readonly name: string;
  readonly weight = 1;
  readonly cache = new Cache();
  /** By replica. */
  readonly inFlight: number[];
  isThere = true;
  /** Sums over time while it is there: of its requests in flight, and of the mean of all targets. */
  load = 0;
  meanLoad = 0;

  constructor(name: string, replicas: number) {
    this.name = name;
    this.inFlight = new Array<number>(replicas).fill(0);
  }

  get all(): number {
    return this.inFlight.reduce((sum, each) => sum + each, 0);
  }
}

/** Events by time: a binary heap. */
class Events {
  readonly #heap: { readonly at: number; readonly run: () => void }[] = [];

  add(at: number, run: () => void): void {
    const heap = this.#heap;
    heap.push({ at, run });
    let index = heap.length - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!this.#swapIfSooner(index, parent)) break;
      index = parent;
    }
  }

  next(): { readonly at: number; readonly run: () => void } | undefined {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    heap[0] = last;
    for (let index = 0; ; ) {
      const [left, right] = [2 * index + 1, 2 * index + 2];
      const child = (heap[right]?.at ?? Infinity) < (heap[left]?.at ?? Infinity) ? right : left;
      if (child >= heap.length || !this.#swapIfSooner(child, index)) return first;
      index = child;
    }
  }

  #swapIfSooner(child: number, parent: number): boolean {
    const [one, other] = [this.#heap[child], this.#heap[parent]];
    if (one === undefined || other === undefined || one.at >= other.at) return false;
    this.#heap[child] = other;
    this.#heap[parent] = one;
    return true;
  }
}

/** xorshift32, evenly from 0 to 1. */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** The target of one request. */
function select(
  balance: LoadBalance,
  targets: readonly Target[],
  key: string,
  replica: number,
  random: () => number,
): Target | undefined {
  const there = targets.filter(({ isThere }) => isThere);
  const loadOf = ({ weight, inFlight }: Target) => ({
    weight,
    inFlight: inFlight[replica] ?? 0,
    latencyMs: undefined,
  });
  if (balance !== 'affinity') return there[choose(there.map(loadOf), balance, random) ?? 0];
  const order = rendezvousOrder(there, key).flatMap((index) => there[index] ?? []);
  return order[firstWithRoom(order.map(loadOf))];
}

/** One balance, with the same conversations as any other. */
export function simulateAffinity(balance: LoadBalance, settings: AffinitySettings): AffinityFigures {
  const { seed, replicas, seconds, arrivals, churn } = settings;
  const [random, choice] = [chance(seed), chance(seed + 1)];
  const after = (mean: number) => -mean * Math.log(1 - random());
  const targets = Array.from(
    { length: settings.targets },
    (_, index) => new Target(`target-${index}`, replicas),
  );
  const perfect = targets.map(() => new Cache());
  const events = new Events();
  let [now, requests, tokens, hits, perfectHits, conversations] = [0, 0, 0, 0, 0, 0];

  const turn = (conversation: Conversation, left: number): void => {
    const replica = Math.floor(choice() * replicas);
    const target = select(balance, targets, conversation.key, replica, choice);
    if (target === undefined) throw new Error('no target is there');
    requests += 1;
    tokens += conversation.tokens;
    hits += target.cache.take(now, conversation);
    // Perfect stickiness: always the same target, which has room for all and never leaves.
    const [first = 0] = rendezvousOrder(targets, conversation.prefix);
    perfectHits += perfect[first]?.take(now, conversation) ?? 0;
    target.inFlight[replica] = (target.inFlight[replica] ?? 0) + 1;
    const [answer, pause] = [after(ANSWER_SECONDS), after(THINK_SECONDS)];
    events.add(now + answer, () => {
      target.inFlight[replica] = (target.inFlight[replica] ?? 0) - 1;
    });
    if (left <= 1) return;
    events.add(now + answer + pause, () => {
      conversation.tokens += TURN_TOKENS;
      turn(conversation, left - 1);
    });
  };
  const arrive = (): void => {
    conversations += 1;
    // A few holders have most of the traffic.
    const holder = Math.floor(HOLDERS * random() ** 3);
    const prefix = `conversation ${conversations}`;
    const key = random() < SHARED ? 'shared' : prefix;
    const turns = Math.ceil(after(TURNS));
    turn({ holder, key, prefix, tokens: SYSTEM_TOKENS + TURN_TOKENS }, turns);
    events.add(now + after(1 / arrivals), arrive);
  };
  const leave = (): void => {
    const target = targets[Math.floor(random() * targets.length)];
    if (target !== undefined) {
      target.isThere = false;
      target.cache.clear();
      events.add(now + churn / 2, () => {
        target.isThere = true;
      });
    }
    events.add(now + churn, leave);
  };
  events.add(0, arrive);
  events.add(churn, leave);
  for (let event = events.next(); event !== undefined && event.at < seconds; event = events.next()) {
    const there = targets.filter(({ isThere }) => isThere);
    const mean = there.reduce((sum, { all }) => sum + all, 0) / there.length;
    for (const target of there) {
      target.load += target.all * (event.at - now);
      target.meanLoad += mean * (event.at - now);
    }
    now = event.at;
    event.run();
  }
  return {
    balance,
    requests,
    hitRate: hits / tokens,
    ofPerfect: hits / perfectHits,
    maxLoad: Math.max(...targets.map(({ load, meanLoad }) => load / meanLoad)),
  };
}

function table(settings: AffinitySettings): string {
  const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
  const rows = BALANCES.map((balance) => simulateAffinity(balance, settings)).map(
    ({ balance, hitRate, ofPerfect, maxLoad }) =>
      `| \`${balance}\` | ${percent(hitRate)} | ${percent(ofPerfect)} | ${maxLoad.toFixed(2)} |\n`,
  );
  const head =
    '| `balance` | cached tokens of prompts | of perfect stickiness | highest load of a target, of the mean |\n|---|---|---|---|\n';
  return head + rows.join('');
}

if (import.meta.filename === process.argv[1]) process.stdout.write(table(AFFINITY_SETTINGS));
