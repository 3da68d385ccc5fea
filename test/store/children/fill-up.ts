// Stores keys until the file may not grow any more, prints what still works, and continues when it may grow again.
import { execFileSync } from 'node:child_process';
import { GatewayError } from '../../../src/errors.ts';
import { openStore } from '../../../src/store/open.ts';
import { until } from '../../helpers/wait.ts';
import { newHolder, newKey } from '../samples.ts';

const store = await openStore({ kind: 'sqlite', path: process.argv[2] ?? '' });
const ping = () =>
  store.ping().then(
    () => 'ok',
    (error: unknown) => (error instanceof GatewayError ? error.code : String(error)),
  );
const stored: string[] = [];
const failures = new Set<string>();
const before = await ping();
for (let attempt = 0; attempt < 2000 && failures.size === 0; attempt += 1) {
  const key = newKey();
  try {
    await store.addKey(key, newHolder('Pro', 'x'.repeat(2000)), null);
    stored.push(key.prefix);
  } catch (error) {
    failures.add(error instanceof GatewayError ? error.code : String(error));
  }
}
const full = await ping();
const readable = (await store.listKeys({ limit: 1000 })).items.map(({ prefix }) => prefix);
// The soft limit, which a process may raise up to the hard one.
execFileSync('prlimit', ['--pid', String(process.pid), '--fsize=unlimited:unlimited']);
await until(async () => (await ping()) === 'ok', 'a good check');
const key = newKey();
await store.addKey(key, newHolder(), null);
stored.push(key.prefix);
process.stdout.write(JSON.stringify({ stored, failures: [...failures], readable, checks: [before, full] }));
await store.close();
