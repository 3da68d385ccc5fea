// Stores keys until the file may not grow any more, and then tells what still works.
import { GatewayError } from '../../../src/errors.ts';
import { openStore } from '../../../src/store/open.ts';
import { newHolder, newKey } from '../samples.ts';

const store = await openStore({ kind: 'sqlite', path: process.argv[2] ?? '' });
const stored: string[] = [];
const failures = new Set<string>();
for (let attempt = 0; attempt < 2000 && failures.size === 0; attempt += 1) {
  const key = newKey();
  try {
    await store.addKey(key, newHolder('Pro', 'x'.repeat(2000)), null);
    stored.push(key.prefix);
  } catch (error) {
    failures.add(error instanceof GatewayError ? error.code : String(error));
  }
}
const readable = (await store.listKeys({ limit: 1000 })).map(({ prefix }) => prefix);
process.stdout.write(JSON.stringify({ stored, failures: [...failures], readable }));
await store.close();
