// A real Chromium for tests: finds the one of the machine, installs Debian's where it may, and starts it headless. A machine
// that has none fails the tests and says what to install; no test is skipped.
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, chromium } from 'playwright-core';

export type { Browser, Page } from 'playwright-core';

const NAMES = [
  'chromium',
  'chromium-browser',
  'google-chrome',
  'google-chrome-stable',
  'google-chrome-beta',
  'chrome',
];

const ARGUMENTS = [
  // Chromium's own sandbox needs rights that a container does not have; the pages are the tests' own.
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Only against a process that hangs: a slow machine takes minutes to install, and one to start. */
const INSTALL_MS = 20 * 60_000;
const LAUNCH_MS = 5 * 60_000;

/** For `beforeAll` of a file that starts a browser, in milliseconds: more than all of the above. */
export const BROWSER_TIMEOUT = INSTALL_MS + LAUNCH_MS + 60_000;

const INSTALL = 'apt-get update && apt-get install -y --no-install-recommends chromium';

/** The machine on which a browser is looked for. */
export interface Machine {
  /** `CHROMIUM` names the browser to take, `PATH` is where the rest is looked for. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Where a browser is looked for before `PATH`. */
  readonly places: readonly string[];
  /** May install packages. */
  readonly isRoot: boolean;
  /** Told once before an installation begins. */
  readonly say: (text: string) => void;
}

const HERE: Machine = {
  env: process.env,
  places: ['/usr/bin/chromium'],
  isRoot: process.getuid?.() === 0,
  say: (text) => process.stderr.write(`${text}\n`),
};

/** Starts a browser with a profile of its own, which goes when it closes. May take as long as `BROWSER_TIMEOUT`. */
export async function launchBrowser(machine: Machine = HERE): Promise<Browser> {
  const executablePath = await chromiumPath(machine);
  // Without `userDataDir` Playwright makes an empty one in the temporary directory, and removes it.
  return await chromium.launch({ executablePath, headless: true, args: ARGUMENTS, timeout: LAUNCH_MS });
}

/**
 * The path of a Chromium, which is installed if that is necessary and possible.
 * @throws Error saying what to install
 */
export async function chromiumPath(machine: Machine = HERE): Promise<string> {
  const wanted = machine.env['CHROMIUM'];
  if (wanted !== undefined && wanted !== '') {
    if (await isExecutable(wanted)) return wanted;
    throw new Error(`CHROMIUM is ${wanted}, and there is no program of that name`);
  }
  const found = await find(machine);
  if (found !== undefined) return found;
  const missing =
    'these tests need a browser: install Chromium (Debian: apt-get install chromium) or Chrome, or set CHROMIUM to its path';
  if (!machine.isRoot || (await onPath('apt-get', machine)) === undefined) throw new Error(missing);
  machine.say(`no Chromium on this machine; running: ${INSTALL}`);
  await install(machine).catch((cause: unknown) => {
    throw new Error(`${missing}; installing it has failed`, { cause });
  });
  const installed = await find(machine);
  if (installed === undefined) throw new Error(`${missing}; the package "chromium" did not bring one`);
  return installed;
}

async function find(machine: Machine): Promise<string | undefined> {
  for (const place of machine.places) if (await isExecutable(place)) return place;
  for (const name of NAMES) {
    const path = await onPath(name, machine);
    if (path !== undefined) return path;
  }
  return undefined;
}

async function onPath(name: string, { env }: Machine): Promise<string | undefined> {
  for (const directory of (env['PATH'] ?? '').split(delimiter)) {
    const path = join(directory, name);
    if (directory !== '' && (await isExecutable(path))) return path;
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  return await access(path, constants.X_OK).then(
    async () => (await stat(path)).isFile(),
    () => false,
  );
}

/**
 * Under a lock, since test files run side by side and apt gives up when another one is at work. Whoever waited for the lock
 * finds that there is nothing left to do.
 */
async function install({ env }: Machine): Promise<void> {
  const lock = fileURLToPath(import.meta.url);
  const script = `command -v chromium > /dev/null || { ${INSTALL}; }`;
  await new Promise<void>((resolve, reject) => {
    const options = {
      env: { ...env, DEBIAN_FRONTEND: 'noninteractive' },
      timeout: INSTALL_MS,
      maxBuffer: 64 * 1024 * 1024,
    };
    execFile('flock', [lock, 'sh', '-c', script], options, (error, _stdout, stderr) => {
      if (error === null) resolve();
      else reject(new Error(stderr.trim().split('\n').slice(-5).join('\n'), { cause: error }));
    });
  });
}
