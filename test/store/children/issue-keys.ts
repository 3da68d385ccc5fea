// Opens a store as a gateway does and issues keys, endlessly or a given number; prints each after it was acknowledged.
import { createHash } from 'node:crypto';
import { type Argon2, Hasher } from '../../../src/auth/hashing/hasher.ts';
import { openSecret } from '../../../src/auth/hashing/hashing-secret.ts';
import { KeyIssuer } from '../../../src/auth/key-issuer.ts';
import type { StoreAddress } from '../../../src/config/schema/addresses.ts';
import { openStore } from '../../../src/store/open.ts';
import { createMetrics } from '../../../src/telemetry/metrics/all-metrics.ts';
import { SHARED_SECRET } from '../samples.ts';

// A path, or the address of a PostgreSQL database, which has no file beside it for the secret.
const [place = '', count = 'Infinity'] = process.argv.slice(2);
// The hash is not what is tested, and the real one would leave the process computing nearly all the time.
const quick: Argon2 = {
  hash: async (text) => {
    const digest = createHash('sha256').update(text).digest('base64').replaceAll('=', '');
    return `$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$${digest}`;
  },
  verify: async () => true,
};

const isPostgres = place.startsWith('postgres://');
const config: StoreAddress = isPostgres ? { kind: 'postgres', url: place } : { kind: 'sqlite', path: place };
const store = await openStore(config);
const secret = await openSecret(isPostgres ? SHARED_SECRET : undefined, config, store);
const issuer = new KeyIssuer({ store, secret, hasher: new Hasher(createMetrics(), quick) });
for (let issued = 0; issued < Number(count); issued += 1) {
  const { key } = await issuer.issue({ tier: 'Lite' });
  process.stdout.write(`${key.reveal()}\n`);
}
await store.close();
