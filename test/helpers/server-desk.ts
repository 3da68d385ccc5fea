// Builds `dist/`, and starts PostgreSQL and Chromium once for a whole run, when a test file first asks. It runs in the process of vitest as the
// global setup of the system projects; test files ask by way of `shared-servers.ts`.
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { TestProject } from 'vitest/node';
import { openStore } from '../../src/store/open.ts';
import { launchBrowserServer } from './browser.ts';
import { query, startPostgres } from './postgres.ts';
import { tempDir } from './wait.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The path of a Unix socket: the name of a server is answered with a `DeskAnswer`. */
    serverDesk: string;
  }
}

export type DeskAnswer = { readonly address: string } | { readonly error: string };

/** Many test files at once have their pools on it. */
const POSTGRES_SETTINGS = { max_connections: '400' };

/** Each project has a desk, and the build is for all of them. */
let built: Promise<unknown> | undefined;

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Programs of the tests start from `dist/`, as in production, in half the time.
  built ??= promisify(execFile)(process.execPath, [
    fileURLToPath(new URL('../../tools/build.ts', import.meta.url)),
  ]);
  await built;
  const stack = new AsyncDisposableStack();
  const directory = stack.use(await tempDir());
  const started = new Map<string, Promise<string>>();
  const addressOf = (name: string): Promise<string> => {
    const address = started.get(name) ?? starts[name]?.() ?? Promise.reject(new Error(`no server ${name}`));
    started.set(name, address);
    return address;
  };
  const starts: Record<string, () => Promise<string>> = {
    postgres: async () => stack.use(await startPostgres(POSTGRES_SETTINGS)).url(),
    store: async () => {
      const url = await addressOf('postgres');
      await query(url, 'create database store');
      const store = new URL('/store', url).href;
      await (await openStore({ kind: 'postgres', url: store })).close();
      return store;
    },
    chromium: async () => {
      const server = stack.adopt(await launchBrowserServer(), (started) => started.close());
      return server.wsEndpoint();
    },
  };
  const answer = async (socket: Socket): Promise<void> => {
    const [name] = await once(socket, 'data');
    const result: DeskAnswer = await addressOf(String(name)).then(
      (value) => ({ address: value }),
      (error: unknown) => ({ error: String(error) }),
    );
    socket.end(JSON.stringify(result));
  };
  const desk = createServer((socket) => {
    socket.on('error', () => {});
    answer(socket).catch(() => socket.destroy());
  });
  const path = directory.file('desk');
  desk.listen(path);
  await once(desk, 'listening');
  project.provide('serverDesk', path);
  return async () => {
    desk.close();
    await Promise.allSettled(started.values());
    await stack.disposeAsync();
  };
}
