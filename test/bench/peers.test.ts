// Other gateways are installed once a machine, and one that cannot be started does not stop the bench.
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { Processes } from '../../bench/processes.ts';
import { installed } from '../../bench/subjects/peer-install.ts';
import { startPeers } from '../../bench/subjects/peers.ts';
import { tempDir } from '../helpers/wait.ts';

afterEach(() => vi.unstubAllEnvs());

test('an installation is kept, and made anew when it did not come to its end', async () => {
  await using directory = await tempDir();
  vi.stubEnv('XDG_CACHE_HOME', directory.path);
  const broken = installed('peer-1', async (folder) => {
    writeFileSync(join(folder, 'half'), '');
    throw new Error('the network went away');
  });
  await expect(broken).rejects.toThrow('the network went away');
  let runs = 0;
  const install = async (folder: string) => {
    runs += 1;
    expect(existsSync(join(folder, 'half'))).toBe(false);
    writeFileSync(join(folder, 'program'), '');
  };
  const folder = await installed('peer-1', install);
  expect(await installed('peer-1', install)).toBe(folder);
  expect(runs).toBe(1);
  expect(existsSync(join(directory.path, 'tollgate', 'peer-1', 'program'))).toBe(true);
});

test('a gateway that cannot be installed here is left out, with the reason', async () => {
  await using directory = await tempDir();
  vi.stubEnv('XDG_CACHE_HOME', directory.path);
  vi.stubEnv('PATH', directory.path);
  const processes = new Processes();
  const told: string[] = [];
  const started = await startPeers(processes, directory.path, 1, (text) => told.push(text));
  await processes.stopAll();
  expect(started).toEqual([]);
  expect(told.filter((text) => text.includes('left out'))).toEqual([
    'bench: portkey is left out: npm, which installs it, is not on the path',
    'bench: litellm is left out: python3, which installs it, is not on the path',
    'bench: one api is left out: go, which installs it, is not on the path',
  ]);
});
