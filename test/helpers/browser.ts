// A real Chromium for tests: finds the one of the machine, installs Debian's where it may, and starts it headless. A machine
// that has none fails the tests and says what to install; no test is skipped. The build without windows is preferred: the
// pages are the same, and it takes two thirds of the processor time.
import { type Browser, type BrowserServer, chromium } from 'playwright-core';
import { INSTALL_MS, installCommand, installPackage, isExecutable, onPath } from './debian-packages.ts';

export type { Browser, Page } from 'playwright-core';

/** Debian's Chromium without windows: the name of the package and of the program. */
const HEADLESS = 'chromium-headless-shell';

const NAMES = [
  HEADLESS,
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

/**
 * Of the browser's own window, which nobody sees: the popup of its address bar alone takes ten times the processor time of a page
 * of the tests, for each page. And a process in advance for the next site.
 */
const WINDOW_FEATURES = [
  'InitialWebUI',
  'PreloadTopChromeWebUI',
  'SpareRendererForSitePerProcess',
  'WebUIOmniboxAimPopup',
  'WebUIOmniboxFullPopup',
  'WebUIOmniboxPopup',
];

/** What Playwright switches off. Chromium reads the last list alone, which is ours. */
const PLAYWRIGHT_FEATURES = [
  'AimEnabled',
  'AvoidCorsURLLoaderRestartOnRedirect',
  'AvoidUnnecessaryBeforeUnloadCheckSync',
  'DestroyProfileOnBrowserClose',
  'HttpsFirstBalancedModeAutoEnable',
  'HttpsUpgrades',
  'LensOverlay',
  'MediaRouter',
  'NetworkTimeServiceQuerying',
  'OptimizationHints',
  'PaintHolding',
  'PreconnectToSearch',
  'TcpPortRandomizationWin',
  'ThirdPartyStoragePartitioning',
  'msEdgeUpdateLaunchServicesPreferredVersion',
  'msForceBrowserSignIn',
];

const DISABLED = `--disable-features=${[...PLAYWRIGHT_FEATURES, ...WINDOW_FEATURES].join()}`;

/** Only against a process that hangs: a slow machine takes a minute to start it. */
const LAUNCH_MS = 5 * 60_000;

/** For `beforeAll` of a file that starts a browser, in milliseconds: more than all of the above. */
export const BROWSER_TIMEOUT = INSTALL_MS + LAUNCH_MS + 60_000;

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
  places: [`/usr/bin/${HEADLESS}`, '/usr/bin/chromium'],
  isRoot: process.getuid?.() === 0,
  say: (text) => process.stderr.write(`${text}\n`),
};

/** Starts a browser with a profile of its own, which goes when it closes. May take as long as `BROWSER_TIMEOUT`. */
export async function launchBrowser(): Promise<Browser> {
  return await chromium.launch(await launchOptions());
}

/** Starts a browser that other processes connect to. May take as long as `BROWSER_TIMEOUT`. */
export async function launchBrowserServer(): Promise<BrowserServer> {
  return await chromium.launchServer({ ...(await launchOptions()), host: '127.0.0.1' });
}

async function launchOptions() {
  // Without `userDataDir` Playwright makes an empty one in the temporary directory, and removes it.
  return {
    executablePath: await chromiumPath(),
    headless: true,
    args: [...ARGUMENTS, DISABLED],
    timeout: LAUNCH_MS,
  };
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
    'these tests need a browser: install Chromium (Debian: apt-get install chromium-headless-shell) or Chrome, or set CHROMIUM to its path';
  if (!machine.isRoot || (await onPath('apt-get', machine.env['PATH'])) === undefined)
    throw new Error(missing);
  machine.say(`no Chromium on this machine; running: ${installCommand(HEADLESS)}`);
  await installPackage(HEADLESS, `command -v ${HEADLESS}`, machine.env).catch((cause: unknown) => {
    throw new Error(`${missing}; installing it has failed`, { cause });
  });
  const installed = await find(machine);
  if (installed === undefined) throw new Error(`${missing}; the package "${HEADLESS}" did not bring one`);
  return installed;
}

async function find({ places, env }: Machine): Promise<string | undefined> {
  for (const place of places) if (await isExecutable(place)) return place;
  for (const name of NAMES) {
    const path = await onPath(name, env['PATH']);
    if (path !== undefined) return path;
  }
  return undefined;
}
