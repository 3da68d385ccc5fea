#!/usr/bin/env node
// Starts Tollgate from dist/ in the published package, from src/ in a checkout, or from its dist/ if that is newer. It finds a
// Node that is new enough and hands over; arguments and exit codes are src/main.ts's. Plain JavaScript, because an old Node
// must be able to read it.
import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/**
 * The first release of each line with the security fixes of June 2026, as `engines` of package.json has them. Lines between
 * (25) ended without the fixes; later lines have them.
 */
const OLDEST = [
  [24, 17, 0],
  [26, 3, 1],
];
/**
 * V8 flags of a serving process, by version of V8: with a flag that it does not know, Node does not start. The Dockerfile has them, too.
 * Compilers get pages that are given back, where `malloc` keeps the most that each thread ever needed; free pages of the heap are given back
 * after 2 s instead of 8; and the heap of a start is not collected in full while it grows.
 */
const SERVE_FLAGS = new Map([
  ['14.6', ['--managed-zone-memory', '--memory-pool-timeout=2', '--initial-old-space-size=64']],
]);
/** Set for the second Node, so that a wrong binary can never start itself again and again. */
const MARK = 'TOLLGATE_SECOND_NODE';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const isSecond = process.env[MARK] !== undefined;
delete process.env[MARK];

if (isNewEnough(process.versions.node)) {
  if (isSecond) endWithParent();
  if (process.argv[2] === 'serve') takeFlags();
  await run();
} else {
  const node = isSecond ? undefined : findNode();
  if (node === undefined) {
    console.error(
      `tollgate needs Node ${OLDEST.map((each) => each.join('.')).join(' or ')} or newer of its line; this is ${process.version}. ` +
        'Install a newer Node, or add one to the project: npm install node@26',
    );
    process.exitCode = 1;
  } else {
    await runWith(node);
  }
}

function isNewEnough(text) {
  const version = text.split('.').map((part) => Number.parseInt(part, 10));
  const [newest] = OLDEST[OLDEST.length - 1];
  if (version[0] > newest) return true;
  const floor = OLDEST.find(([major]) => major === version[0]);
  if (floor === undefined) return false;
  const at = floor.findIndex((part, index) => part !== version[index]);
  return at === -1 || version[at] > floor[at];
}

/**
 * Becomes the same process with the flags, which V8 takes only at its start. Not where a parent has a channel to this process, which
 * would be lost, nor where Node may or can not: without the flags it serves as well, in more memory.
 */
function takeFlags() {
  const flags = SERVE_FLAGS.get(process.versions.v8.split('.', 2).join('.'));
  if (flags === undefined || process.execArgv.includes(flags[0])) return;
  if (process.send !== undefined || process.permission !== undefined || process.platform === 'win32') return;
  process.execve(process.execPath, [
    process.execPath,
    ...flags,
    ...process.execArgv,
    ...process.argv.slice(1),
  ]);
}

async function run() {
  // Most of a start is compiling; what was compiled once is kept in the folder for temporary files.
  const { default: module } = await import('node:module');
  module.enableCompileCache?.();
  const entry = entryFile();
  if (entry === undefined) {
    console.error(`tollgate: neither src/main.ts nor dist/main.js is in ${root}`);
    process.exitCode = 1;
    return;
  }
  const { main } = await import(pathToFileURL(entry).href);
  const code = await main(process.argv.slice(2));
  if (typeof code === 'number') process.exitCode = code;
}

/**
 * The newer of both: a checkout has src, the published package has dist, and a checkout that was built has both. A build in a
 * checkout contains the packages, so it is outdated by a later installation, too.
 */
function entryFile() {
  const [source, built, installed] = ['src/main.ts', 'dist/main.js', 'node_modules/.package-lock.json'].map(
    (file) => join(root, file),
  );
  if (!existsSync(source)) return existsSync(built) ? built : undefined;
  if (!existsSync(built)) return source;
  const changed = Math.max(
    newestChange(dirname(source)),
    statSync(installed, { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  return changed < statSync(built).mtimeMs ? built : source;
}

/** The time of the last change in a folder, in milliseconds. A removed file changes the folder that it was in. */
function newestChange(folder) {
  let newest = statSync(folder).mtimeMs;
  // `join` would take a fifth of it.
  for (const file of readdirSync(folder, { recursive: true }))
    newest = Math.max(newest, statSync(`${folder}/${file}`).mtimeMs);
  return newest;
}

/** The binary of the `node` package, in the node_modules of this folder or of one above it. */
function findNode() {
  const name = process.platform === 'win32' ? 'node.exe' : 'node';
  for (let folder = root; ; folder = dirname(folder)) {
    const binary = join(folder, 'node_modules', 'node', 'bin', name);
    if (existsSync(binary)) return binary;
    if (folder === dirname(folder)) return undefined;
  }
}

/** Runs this file again with another Node, and is to the outside what that process is: streams, signals, exit code. */
async function runWith(node) {
  const { spawn } = await import('node:child_process');
  const child = spawn(node, [...process.execArgv, fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, [MARK]: '1' },
  });
  // A terminal sends its signals to both processes; passed on, they would arrive twice and end a drain at once.
  const atTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
  const handlers = ['SIGINT', 'SIGQUIT', 'SIGHUP', 'SIGTERM', 'SIGUSR2'].map((signal) => {
    const passOn = signal === 'SIGTERM' || signal === 'SIGUSR2' || !atTerminal;
    const handler = () => void (passOn && child.kill(signal));
    process.on(signal, handler);
    return [signal, handler];
  });
  child.on('error', (error) => {
    console.error(`tollgate: ${node} could not be started: ${error.message}`);
    process.exitCode = 1;
  });
  child.on('exit', (code, signal) => {
    for (const [name, handler] of handlers) process.off(name, handler);
    if (signal === null) process.exitCode = code ?? 1;
    else process.kill(process.pid, signal);
  });
}

/** The first process can be killed without a word; then nobody could stop this one any more, so it ends too. */
function endWithParent() {
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'));
  process.channel?.unref();
}
