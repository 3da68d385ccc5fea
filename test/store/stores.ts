// The kinds of database that a store can be in, for tests that hold for each of them.
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { POSTGRES_TIMEOUT, startPostgres } from '../helpers/postgres.ts';
import { tempDir } from '../helpers/wait.ts';

/** Where fresh stores come from, for the tests of one file. */
export interface StoreSource extends AsyncDisposable {
  /** The address of a store that does not exist yet. */
  fresh(): Promise<StoreAddress>;
}

export interface StoreKind {
  readonly name: string;
  /** For `beforeAll`, in milliseconds. */
  readonly timeout: number;
  start(): Promise<StoreSource>;
}

export const SQLITE_KIND: StoreKind = {
  name: 'SQLite',
  timeout: 120_000,
  async start() {
    const dir = await tempDir();
    let count = 0;
    return {
      fresh: async () => {
        count += 1;
        return { kind: 'sqlite', path: dir.file(`keys-${count}.db`) };
      },
      [Symbol.asyncDispose]: () => dir.remove(),
    };
  },
};

export const POSTGRES_KIND: StoreKind = {
  name: 'PostgreSQL',
  timeout: POSTGRES_TIMEOUT,
  async start() {
    const server = await startPostgres();
    return {
      fresh: async () => ({ kind: 'postgres', url: await server.createDatabase() }),
      [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
    };
  },
};

export const STORE_KINDS: readonly StoreKind[] = [SQLITE_KIND, POSTGRES_KIND];
