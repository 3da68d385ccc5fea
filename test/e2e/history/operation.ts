// What a history is made of: what clients asked and heard, what was broken meanwhile, and what the store holds at the end.
// All times are monotonic milliseconds of one process. A key is named here and never whole: the name of one that was issued
// is its prefix, and one that was never issued has a name of another form.

/** What a client heard of a request with a key. */
export type Answer =
  /** 200. */
  | 'accepted'
  /** 401. */
  | 'refused'
  /** 503. */
  | 'unavailable'
  /** The connection ended, or no answer came in time: whatever was asked may have been done. */
  | 'broken'
  /** Any other status. */
  | 'other';

interface Timed {
  readonly client: number;
  readonly invokedAt: number;
  readonly completedAt: number;
}

export interface Issue extends Timed {
  readonly kind: 'issue';
  /** Undefined: it failed, and whether the store has a key nobody holds is not known. */
  readonly key: string | undefined;
}

export interface Rotate extends Timed {
  readonly kind: 'rotate';
  readonly key: string;
  readonly replica: number;
  readonly answer: Answer;
  /** The new key, when accepted. */
  readonly successor: string | undefined;
}

export interface Revoke extends Timed {
  readonly kind: 'revoke';
  readonly key: string;
  /** `already`: the store says that it had ended before. `unknown`: the store did not say. */
  readonly outcome: 'revoked' | 'already' | 'unknown';
  /** When the store said so, where that is known more exactly than by the end of the operation. */
  readonly storedAt: number | undefined;
  /** Replicas that confirmed before the end of the operation that they refuse the key. */
  readonly confirmedBy: readonly number[];
}

/** The cheapest request that needs a key. */
export interface Call extends Timed {
  readonly kind: 'call';
  readonly key: string;
  readonly replica: number;
  readonly answer: Answer;
}

export type Operation = Issue | Rotate | Revoke | Call;

/** What was broken. `memory`: Redis forgot what it held. `joining`: a replica that has just started. */
export type Subject = 'redis' | 'memory' | 'store' | 'cable' | 'replica' | 'joining' | 'machine';

export interface Disturbance {
  readonly subject: Subject;
  /** In what way: `paused`, `killed`, … */
  readonly how: string;
  /** Undefined: it concerns all replicas. */
  readonly replica: number | undefined;
  readonly from: number;
  /** Infinity while it lasts. */
  readonly to: number;
}

/** One key as the store holds it at the end. */
export interface StoredKey {
  readonly key: string;
  readonly holder: string;
  readonly state: 'active' | 'invalidated' | 'revoked';
  readonly replacedBy: string | null;
}

export interface History {
  readonly operations: readonly Operation[];
  readonly disturbances: readonly Disturbance[];
}
