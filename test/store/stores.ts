// The kinds of database that a store can be in, for tests that hold for each of them.
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { writeNewStore } from '../helpers/new-store.ts';
import { POSTGRES_TIMEOUT, sharedPostgres } from '../helpers/shared-servers.ts';
import { tempDir } from '../helpers/wait.ts';

/** Where fresh stores come from, for the tests of one file. */
export interface StoreSource extends AsyncDisposable {
  /** The address of a new store. It has its schema already, which is faster. */
  fresh(): Promise<StoreAddress>;
  /** The address of a store that does not exist yet. */
  empty(): Promise<StoreAddress>;
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
    const empty = async (): Promise<StoreAddress> => {
      count += 1;
      return { kind: 'sqlite', path: dir.file(`keys-${count}.db`) };
    };
    return {
      fresh: async () => {
        const address = await empty();
        if ('path' in address) await writeNewStore(address.path);
        return address;
      },
      empty,
      [Symbol.asyncDispose]: () => dir.remove(),
    };
  },
};

export const POSTGRES_KIND: StoreKind = {
  name: 'PostgreSQL',
  timeout: POSTGRES_TIMEOUT,
  async start() {
    const databases = await sharedPostgres();
    return {
      fresh: async () => ({ kind: 'postgres', url: await databases.createStore() }),
      empty: async () => ({ kind: 'postgres', url: await databases.createDatabase() }),
      [Symbol.asyncDispose]: () => databases[Symbol.asyncDispose](),
    };
  },
};

export const STORE_KINDS: readonly StoreKind[] = [SQLITE_KIND, POSTGRES_KIND];

/** Opens a new store before each test of this block, and closes it afterwards. @param use takes it, and its address */
export function storeForEachTest(
  { start, timeout }: StoreKind,
  use: (store: Store, address: StoreAddress) => void,
): void {
  let source: StoreSource;
  let store: Store;
  beforeAll(async () => {
    source = await start();
  }, timeout);
  afterAll(() => source[Symbol.asyncDispose]());
  beforeEach(async () => {
    const address = await source.fresh();
    store = await openStore(address);
    use(store, address);
  });
  afterEach(() => store.close());
}
