// What the operations of a history say about each key, and when the fleet was well. Pure: it sees what was written down, and
// claims nothing that this does not prove.
import type { Disturbance, History, Operation, Revoke, Rotate, Subject } from './operation.ts';

/** After it was healed, a fault is still felt for so long, in milliseconds. */
export const SETTLE_MS = 3000;

/** What is known of the life of one key. */
export interface Life {
  /** Who asked for it had it from then on. */
  readonly issuedAt: number;
  /** From then on it may have ended: somebody had asked for that. */
  readonly mayEndFrom: number;
  /** By then it had ended: somebody was told so. */
  readonly endedBy: number;
  /** When what ended it was asked for. */
  readonly endAskedAt: number;
  readonly rotations: readonly Rotate[];
  readonly revocations: readonly Revoke[];
}

/** Key → what is known of it. Keys that were never issued are not in it. */
export function livesOf(operations: readonly Operation[]): ReadonlyMap<string, Life> {
  const issued = new Map<string, number>();
  for (const operation of operations) {
    const key = newKeyOf(operation);
    if (key !== undefined) issued.set(key, operation.completedAt);
  }
  const byKey = Map.groupBy(
    operations.filter((each) => each.kind !== 'issue'),
    ({ key }) => key,
  );
  return new Map(Array.from(issued, ([key, issuedAt]) => [key, lifeOf(issuedAt, byKey.get(key) ?? [])]));
}

function lifeOf(issuedAt: number, operations: readonly Exclude<Operation, { kind: 'issue' }>[]): Life {
  const rotations = operations.filter((each) => each.kind === 'rotate');
  const revocations = operations.filter((each) => each.kind === 'revoke');
  const endings = [...rotations, ...revocations];
  const mayEndFrom = Math.min(...endings.map(({ invokedAt }) => invokedAt));
  // Whoever is refused has been told, too: what has ended does not come back.
  const told = operations.flatMap((each): number[] => {
    if (each.kind === 'revoke') {
      return each.outcome === 'unknown' ? [] : [each.storedAt ?? each.completedAt];
    }
    const isEnd = each.answer === 'refused' || (each.kind === 'rotate' && each.answer === 'accepted');
    return isEnd ? [each.completedAt] : [];
  });
  const endedBy = Math.min(...told);
  return { issuedAt, mayEndFrom, endedBy, endAskedAt: Math.min(mayEndFrom, endedBy), rotations, revocations };
}

/** The key that came of this operation. */
export function newKeyOf(operation: Operation): string | undefined {
  if (operation.kind === 'issue') return operation.key;
  return operation.kind === 'rotate' ? operation.successor : undefined;
}

export class Weather {
  readonly #disturbances: readonly Disturbance[];

  constructor({ disturbances }: Pick<History, 'disturbances'>) {
    this.#disturbances = disturbances;
  }

  /** What concerned this replica at some time from `from` to `to`, of these subjects or of all. */
  around(
    replica: number,
    from: number,
    to: number,
    subjects?: readonly Subject[],
    settleMs = 0,
  ): Disturbance[] {
    return this.#disturbances.filter(
      (each) =>
        (each.replica === undefined || each.replica === replica) &&
        (subjects === undefined || subjects.includes(each.subject)) &&
        each.from <= to &&
        each.to + settleMs >= from,
    );
  }

  /** The longest time within `from` to `to` in which none of these subjects was disturbed for this replica. */
  longestCalm(replica: number, from: number, to: number, subjects: readonly Subject[]): number {
    const rough = this.around(replica, from, to, subjects).sort((a, b) => a.from - b.from);
    let longest = 0;
    let calmFrom = from;
    for (const each of rough) {
      longest = Math.max(longest, each.from - calmFrom);
      calmFrom = Math.max(calmFrom, each.to);
    }
    return Math.max(longest, to - calmFrom);
  }
}
