// Asks the store for one key's record: once for all who ask at the same time, for a bounded number of keys at once, and
// nobody waits longer than a request can bear.
import { GatewayError } from '../errors.ts';
import type { KeyRecord, Prefix } from '../store/record.ts';
import type { Store } from '../store/store.ts';
import type { ChangeClock } from './cache.ts';
import { withDeadline } from './deadline.ts';

const MAX_RUNNING = 32;
const MAX_WAITING = 512;
const WAIT_MS = 250;

export interface Found {
  readonly record: KeyRecord | undefined;
  /** Position of the change clock just before the store was asked. */
  readonly position: number;
  /** The same moment in milliseconds of the injected clock. */
  readonly at: number;
}

export class RecordLookup {
  readonly #store: Pick<Store, 'findKey'>;
  readonly #clock: ChangeClock;
  readonly #now: () => number;
  readonly #flights = new Map<Prefix, Promise<Found>>();
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(store: Pick<Store, 'findKey'>, clock: ChangeClock, now: () => number) {
    this.#store = store;
    this.#clock = clock;
    this.#now = now;
  }

  /** @throws GatewayError `auth_unavailable` when the store fails, is late (250 ms) or too many wait */
  find(prefix: Prefix): Promise<Found> {
    let flight = this.#flights.get(prefix);
    if (flight === undefined) {
      if (this.#running >= MAX_RUNNING && this.#waiting.length >= MAX_WAITING) {
        return Promise.reject(unavailable(new Error('too many look-ups of keys wait for the store')));
      }
      flight = this.#look(prefix).finally(() => this.#flights.delete(prefix));
      this.#flights.set(prefix, flight);
    }
    return withDeadline(flight, WAIT_MS, () =>
      unavailable(new Error(`the store did not answer within ${WAIT_MS} ms`)),
    );
  }

  async #look(prefix: Prefix): Promise<Found> {
    if (this.#running < MAX_RUNNING) this.#running += 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    const position = this.#clock.now();
    const at = this.#now();
    try {
      return { record: await this.#store.findKey(prefix), position, at };
    } catch (error) {
      throw unavailable(error);
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }
}

function unavailable(cause: unknown): GatewayError {
  return new GatewayError('auth_unavailable', undefined, { cause });
}
