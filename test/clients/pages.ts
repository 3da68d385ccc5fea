// Web pages for a browser in a test: a tiny server per origin with one page, which carries page.ts and the official SDK as one
// script.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { build } from 'rolldown';
import type { Browser, Page } from '../helpers/browser.ts';
import type { InPage } from './page.ts';

declare global {
  // What a page has to offer; the functions of a test that are run there reach it by these names.
  var inPage: InPage;
  var onText: (text: string) => Promise<boolean>;
}

export interface Origin {
  /** As the browser sends it, `http://host:port`. */
  readonly origin: string;
  /**
   * A new page of this origin, in a profile of its own.
   * @param path `/sandboxed` is a page that the browser regards as of no origin
   */
  open(browser: Browser, path?: '/' | '/sandboxed'): Promise<OpenPage>;
  close(): Promise<void>;
}

export interface OpenPage {
  readonly page: Page;
  /**
   * From now on has what the page reads.
   * @param goOn gives the page the word to go on reading, or to stop. Default: go on
   */
  hear(goOn?: () => boolean): Heard;
}

export interface Heard {
  /** All of the text so far. */
  text: string;
}

/** Bundles page.ts with all that it imports. */
export async function pageScript(): Promise<string> {
  const input = fileURLToPath(new URL('./page.ts', import.meta.url));
  const { output } = await build({
    input,
    platform: 'browser',
    output: { format: 'iife' },
    write: false,
    logLevel: 'warn',
  });
  const [script, ...others] = output;
  if (script === undefined || others.length > 0) throw new Error('the script of the page is not one file');
  return script.code;
}

const PAGE = '<!doctype html><title>A page</title><script src="/page.js"></script>';

/** @param script what the page runs, as text */
export async function startOrigin(script: string): Promise<Origin> {
  const server = createServer((request, response) => {
    const isScript = request.url === '/page.js';
    response.writeHead(200, {
      'content-type': `${isScript ? 'text/javascript' : 'text/html'}; charset=utf-8`,
      ...(request.url === '/sandboxed' ? { 'content-security-policy': 'sandbox allow-scripts' } : {}),
    });
    response.end(isScript ? script : PAGE);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  const origin = `http://127.0.0.1:${address.port}`;
  const close = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  };
  return {
    origin,
    open: (browser, path = '/') => openPage(browser, origin + path),
    close,
  };
}

async function openPage(browser: Browser, url: string): Promise<OpenPage> {
  const page = await browser.newPage();
  // What waits here waits for the browser to do its work; on a slow machine that has no deadline but the test's.
  page.setDefaultTimeout(0);
  page.setDefaultNavigationTimeout(0);
  let heard: Heard = { text: '' };
  let next = (): boolean => true;
  await page.exposeFunction('onText', (text: string) => {
    heard.text = text;
    return next();
  });
  await page.goto(url);
  return {
    page,
    hear: (goOn = () => true) => {
      heard = { text: '' };
      next = goOn;
      return heard;
    },
  };
}
