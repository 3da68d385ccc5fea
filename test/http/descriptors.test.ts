// The limit on open files, as a process really has it, and what is made of it.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { connectionsWithin } from '../../src/http/accept/descriptors.ts';

const MODULE = fileURLToPath(new URL('../../src/http/accept/descriptors.ts', import.meta.url));

test('the limit is that of the process', () => {
  const script = `import { descriptorLimit } from '${MODULE}'; process.stdout.write(String(descriptorLimit()));`;
  const command = `ulimit -n 777; exec "$0" --input-type=module -e "${script}"`;
  expect(execFileSync('sh', ['-c', command, process.execPath], { encoding: 'utf8' })).toBe('777');
});

test.each([
  [1024, 384],
  [20_000, 9_872],
  [1_000_000, 16_384],
  [Number.POSITIVE_INFINITY, 16_384],
  [64, 16],
])('of %d files, clients get %d connections', (limit, connections) => {
  expect(connectionsWithin(limit)).toBe(connections);
});
