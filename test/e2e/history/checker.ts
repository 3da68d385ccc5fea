// Holds a history against what is promised of keys. Pure functions, which say "violation" only where no order of events that
// fits the history keeps the promise: a request whose answer was lost may have been done, at any time after it was asked.
import type { Call, Disturbance, History, Operation, Rotate, StoredKey } from './operation.ts';
import { type Life, livesOf, newKeyOf, SETTLE_MS, Weather } from './timeline.ts';

/** A dead key is accepted no longer where the replica reads the store's feed, every half second, in milliseconds; calls take 1.4 s … */
export const FEED_BOUND_MS = 3000;
/** … nor where it reaches Redis, which has been told … */
export const BOUND_MS = 5000;
/** … and no longer where it reaches neither. */
export const STALE_BOUND_MS = 60_000;

export type Rule =
  | 'a dead key is refused in time'
  | 'who ended a key refuses it at once'
  | 'who confirmed the end of a key refuses it'
  | 'a living key is never refused'
  | 'an invented key is never accepted'
  | 'a key is rotated once'
  | 'the store keeps what was told'
  | 'a holder has one key'
  | '503 only while something is away'
  | 'every request is answered';

export interface Violation {
  readonly rule: Rule;
  readonly text: string;
  /** Undefined: it is about no key that was issued. */
  readonly key: string | undefined;
  readonly at: number;
}

/** All that is wrong in a history, in the order of time. */
export function check(history: History, stored?: readonly StoredKey[]): readonly Violation[] {
  const lives = livesOf(history.operations);
  const weather = new Weather(history);
  const violations = [
    ...history.operations.flatMap((each) =>
      each.kind === 'call' || each.kind === 'rotate' ? answers(each, lives, weather) : [],
    ),
    ...rotations(lives),
    ...(stored === undefined
      ? []
      : [...keeping(lives, stored), ...holders(history.operations, lives, stored)]),
  ];
  return violations.sort((a, b) => a.at - b.at);
}

function answers(
  request: Call | Rotate,
  lives: ReadonlyMap<string, Life>,
  weather: Weather,
): readonly Violation[] {
  const { key, answer, replica, invokedAt, completedAt } = request;
  const life = lives.get(key);
  const violation = (rule: Rule, text: string): Violation[] => [
    {
      rule,
      text: `${request.kind} with ${key} at replica ${replica}: ${text}`,
      key: life && key,
      at: invokedAt,
    },
  ];
  switch (answer) {
    case 'accepted':
      if (life === undefined) return violation('an invented key is never accepted', 'accepted');
      return [...acceptedLate(request, life, weather)].flatMap(([rule, text]) => violation(rule, text));
    case 'refused':
      return life !== undefined && isAlive(life, request)
        ? violation('a living key is never refused', 'refused, and nobody had asked for its end')
        : [];
    case 'unavailable':
      return weather.around(replica, invokedAt, completedAt, undefined, SETTLE_MS).length === 0
        ? violation('503 only while something is away', 'nothing was away')
        : [];
    case 'broken':
      return weather.around(replica, invokedAt, completedAt, ['replica']).length === 0
        ? violation('every request is answered', 'no answer, and nobody had killed the replica')
        : [];
    case 'other':
      return violation('every request is answered', 'neither 200 nor 401 nor 503');
  }
}

/** Whether the key lived from the beginning to the end of this request. */
function isAlive({ issuedAt, rotations, revocations }: Life, request: Call | Rotate): boolean {
  const others = [...rotations, ...revocations].filter((each) => each !== request);
  return request.invokedAt >= issuedAt && others.every((each) => each.invokedAt > request.completedAt);
}

function* acceptedLate(request: Call | Rotate, life: Life, weather: Weather): Generator<[Rule, string]> {
  const { replica, invokedAt } = request;
  for (const each of life.rotations) {
    if (
      each !== request &&
      each.answer === 'accepted' &&
      each.replica === replica &&
      each.completedAt < invokedAt
    ) {
      yield ['who ended a key refuses it at once', `accepted ${ms(invokedAt - each.completedAt)} later`];
    }
  }
  for (const each of life.revocations) {
    if (each.confirmedBy.includes(replica) && each.completedAt < invokedAt) {
      const late = ms(invokedAt - each.completedAt);
      yield ['who confirmed the end of a key refuses it', `accepted ${late} after the confirmation`];
    }
  }
  const lag = invokedAt - life.endedBy;
  if (lag <= 0) return;
  const rule = 'a dead key is refused in time';
  if (lag > STALE_BOUND_MS) yield [rule, `accepted ${ms(lag)} after its end`];
  else if (
    weather.longestCalm(replica, life.endedBy, invokedAt, ['store', 'replica', 'machine']) > FEED_BOUND_MS
  ) {
    yield [rule, `accepted ${ms(lag)} after its end, the store within reach`];
  } else if (lag > BOUND_MS && hadRedis(request, life, weather)) {
    yield [rule, `accepted ${ms(lag)} after its end, Redis within reach and its memory whole`];
  }
}

/** From before the end was asked for until now. One who was told of an end by a refusal may have been told by the store. */
function hadRedis({ replica, invokedAt }: Call | Rotate, life: Life, weather: Weather): boolean {
  const disturbed = ['redis', 'memory', 'cable', 'replica', 'joining', 'machine'] as const;
  return (
    Number.isFinite(life.mayEndFrom) &&
    weather.around(replica, life.mayEndFrom, invokedAt, disturbed, SETTLE_MS).length === 0
  );
}

function rotations(lives: ReadonlyMap<string, Life>): readonly Violation[] {
  return Array.from(lives).flatMap(([key, life]): Violation[] => {
    const won = life.rotations.filter(({ answer }) => answer === 'accepted');
    const at = won.at(-1)?.completedAt ?? 0;
    if (won.length > 1) {
      return [
        { rule: 'a key is rotated once', text: `${won.length} rotations of ${key} gave a key`, key, at },
      ];
    }
    const isRevoked = life.revocations.some(({ outcome }) => outcome === 'revoked');
    return won.length === 1 && isRevoked
      ? [{ rule: 'a key is rotated once', text: `${key} was rotated and revoked`, key, at }]
      : [];
  });
}

/** What was told of each key is in the store. */
function keeping(lives: ReadonlyMap<string, Life>, stored: readonly StoredKey[]): readonly Violation[] {
  const byKey = new Map(stored.map((each) => [each.key, each]));
  return Array.from(lives).flatMap(([key, life]): Violation[] => {
    const held = byKey.get(key);
    const violation = (text: string): Violation[] => [
      { rule: 'the store keeps what was told', text: `${key} ${text}`, key, at: life.issuedAt },
    ];
    if (held === undefined) return violation('was issued and is not there');
    const successor = life.rotations.find(({ answer }) => answer === 'accepted')?.successor;
    if (successor !== undefined && (held.state !== 'invalidated' || held.replacedBy !== successor)) {
      return violation(`was replaced by ${successor}, and is ${held.state}, replaced by ${held.replacedBy}`);
    }
    if (life.revocations.some(({ outcome }) => outcome === 'revoked') && held.state !== 'revoked') {
      return violation(`was revoked, and is ${held.state}`);
    }
    if (held.state === 'active' && Number.isFinite(life.endedBy))
      return violation('had ended, and is active');
    if (held.state === 'invalidated' && life.rotations.length === 0)
      return violation('was rotated by nobody');
    if (held.state === 'revoked' && life.revocations.length === 0) return violation('was revoked by nobody');
    return [];
  });
}

/** No more than one active key; one, unless support has revoked the last. */
function holders(
  operations: readonly Operation[],
  lives: ReadonlyMap<string, Life>,
  stored: readonly StoredKey[],
): readonly Violation[] {
  const issued = new Set(operations.map(newKeyOf));
  return Array.from(Map.groupBy(stored, ({ holder }) => holder)).flatMap(([, keys]): Violation[] => {
    // Of a holder whose first key got lost on the way nobody knows anything.
    const known = keys.find(({ key }) => issued.has(key));
    if (known === undefined) return [];
    const active = keys.filter(({ state }) => state === 'active').length;
    const mayBeRevoked = keys.some(({ key }) => (lives.get(key)?.revocations.length ?? 0) > 0);
    const isRevoked = keys.some(({ state }) => state === 'revoked');
    const least = mayBeRevoked ? 0 : 1;
    if (active >= least && active <= (isRevoked ? 0 : 1)) return [];
    const text = `the holder of ${known.key} has ${active} active keys of ${keys.length}`;
    return [{ rule: 'a holder has one key', text, key: known.key, at: 0 }];
  });
}

function ms(time: number): string {
  return `${Math.round(time)} ms`;
}

/** What the history says about a violation: for the message of a test. */
export function excerpt({ operations, disturbances }: History, { key, at, text, rule }: Violation): string {
  const near = (each: { readonly from: number; readonly to: number }) =>
    each.from <= at + 500 && each.to >= at - 8000;
  const aboutKey = operations.filter(
    (each) =>
      each.kind !== 'issue' &&
      each.key === key &&
      key !== undefined &&
      (each.kind !== 'call' || Math.abs(each.invokedAt - at) < 1500),
  );
  const lines = [
    ...aboutKey.map((each) => ({ at: each.invokedAt, line: JSON.stringify(rounded(each)) })),
    ...disturbances
      .filter(near)
      .map((each: Disturbance) => ({ at: each.from, line: JSON.stringify(rounded(each)) })),
  ];
  const sorted = lines.sort((a, b) => a.at - b.at).map(({ line }) => `    ${line}`);
  return [`${rule}: ${text} (at ${Math.round(at)})`, ...sorted.slice(-40)].join('\n');
}

function rounded(entry: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(entry).map(([name, value]: [string, unknown]) => [
      name,
      typeof value === 'number' ? Math.round(value) : value,
    ]),
  );
}
