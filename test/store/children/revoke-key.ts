// Revokes one key of a store, as support does beside a running gateway.
import { revokeKey } from '../../../src/auth/key-revocation.ts';
import { isPrefix } from '../../../src/store/key-record.ts';
import { openStore } from '../../../src/store/open.ts';

const [path = '', prefix = ''] = process.argv.slice(2);
const store = await openStore({ kind: 'sqlite', path });
if (isPrefix(prefix)) process.stdout.write(`${(await revokeKey({ store }, prefix)).kind}\n`);
await store.close();
