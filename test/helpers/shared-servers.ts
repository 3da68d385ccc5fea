// Servers that all test files of a run share: a PostgreSQL, with a database for each who asks, and a Chromium. Tests that stop,
// pause or configure a server start their own.
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { chromium } from 'playwright-core';
import { inject } from 'vitest';
import type { Browser } from './browser.ts';
import { query } from './postgres.ts';
import type { DeskAnswer } from './server-desk.ts';

export { BROWSER_TIMEOUT } from './browser.ts';
export { POSTGRES_TIMEOUT } from './postgres.ts';

export interface Databases extends AsyncDisposable {
  readonly port: number;
  /** A new empty database, dropped when this is disposed of. @returns its address, of a superuser */
  createDatabase(): Promise<string>;
  /** The same, with the schema of the store in it. */
  createStore(): Promise<string>;
}

/** May take as long as `POSTGRES_TIMEOUT`. */
export async function sharedPostgres(): Promise<Databases> {
  const url = new URL(await addressOf('postgres'));
  const names: string[] = [];
  const copyOf = async (template: string): Promise<string> => {
    const name = `test_${randomBytes(8).toString('hex')}`;
    // Files are copied for less than the default, which writes them to the log.
    await query(url.href, `create database ${name} template ${template} strategy file_copy`);
    names.push(name);
    return new URL(`/${name}`, url).href;
  };
  return {
    port: Number(url.port),
    createDatabase: () => copyOf('template1'),
    createStore: async () => copyOf(new URL(await addressOf('store')).pathname.slice(1)),
    async [Symbol.asyncDispose]() {
      for (const name of names.splice(0)) await query(url.href, `drop database ${name} with (force)`);
    },
  };
}

/** A connection of its own to the shared Chromium: its contexts go when it closes. May take as long as `BROWSER_TIMEOUT`. */
export async function sharedBrowser(): Promise<Browser> {
  return await chromium.connect(await addressOf('chromium'));
}

async function addressOf(server: string): Promise<string> {
  const socket = connect(inject('serverDesk'));
  socket.write(server);
  const answer: DeskAnswer = JSON.parse(await text(socket));
  if ('error' in answer) throw new Error(answer.error);
  return answer.address;
}
