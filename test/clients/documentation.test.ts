// docs/clients.md: its snippets for clients that the tests install run as they stand, and what it names exists. The other clients
// were tried by hand; test/clients/comparison has those that can be installed.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ERRORS } from '../../src/errors.ts';
import { Program, ROOT } from '../e2e/program.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';

const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
const page = read('docs/clients.md');
const reference = read('docs/configuration.md');
const { devDependencies } = JSON.parse(read('package.json'));

/** The base URL of all snippets. */
const BASE_URL = 'https://llm.example.com/v1';

/** The first group of each match. */
const all = (pattern: RegExp, text = page): readonly string[] =>
  Array.from(text.matchAll(pattern), ([, first = '']) => first);

interface Section {
  readonly heading: string;
  readonly text: string;
}

const sections: readonly Section[] = page
  .split(/^## /m)
  .slice(1)
  .map((text) => ({ heading: text.slice(0, text.indexOf('\n')), text }));

/** The rows of the table at the top. */
const rows = all(/^\| (\[.*)\|$/gm).map((row) => row.split(' | '));

let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({
    config: {
      upstreams: { builtin: { builtin: 'echo' } },
      models: { 'chat-mini': { targets: [{ upstream: 'builtin', model: 'echo' }] } },
    },
  });
});

afterAll(() => gateway?.close());

describe('snippets', () => {
  const installed = all(/^```ts\n([\s\S]*?)^```$/gm)
    .map((code) => ({ code, packages: all(/ from '(.*)';/g, code) }))
    .filter(({ packages }) => packages.every((name) => name in devDependencies));

  test('are on the page for all clients that the tests install', () => {
    expect(installed.flatMap(({ packages }) => packages)).toEqual([
      'openai',
      '@ai-sdk/openai-compatible',
      'ai',
      '@langchain/openai',
    ]);
  });

  test.each(installed)('of $packages get an answer', async ({ code }) => {
    expect(code).toContain(BASE_URL);
    const words = ['--input-type=module', '--eval', code.replaceAll(BASE_URL, `${gateway.url}/v1`)];
    await using program = new Program(words, { cwd: ROOT, env: { TOLLGATE_KEY: await gateway.key() } });
    expect(await program.end()).toMatchObject({ code: 0, stdout: 'You said: Hello\n', stderr: '' });
  });

  test('name the placeholders that the page explains, and no others', () => {
    const blocks = all(/^```\w+\n([\s\S]*?)^```$/gm);
    expect(blocks.length).toBeGreaterThan(15);
    for (const url of blocks.flatMap((block) => all(/(https?:\/\/[^\s"',]+)/g, block)))
      expect(url === BASE_URL.slice(0, -3) || url.startsWith(BASE_URL), url).toBe(true);
    for (const key of blocks.flatMap((block) => all(/\b([A-Z]+_KEY)\b/g, block)))
      expect(['TOLLGATE_KEY', 'OPENAI_API_KEY', 'RAG_OPENAI_API_KEY']).toContain(key);
  });
});

describe('the table of clients', () => {
  test('leads to every section about a client, and to nothing else', () => {
    const named = new Set(rows.map(([client = '']) => /\(#(.*)\)/.exec(client)?.[1]));
    const about = sections.map(({ heading }) => heading.toLowerCase().replaceAll(' ', '-')).slice(2, -2);
    expect([...named]).toEqual(about);
  });

  test('has the versions that the tests install', () => {
    const cells = rows
      .filter(([client = '']) => !client.includes('Python'))
      .map(([, version = '']) => version);
    const versions = cells.flatMap((cell) =>
      Array.from(cell.matchAll(/`([^`]+)` (\d[\d.]*)/g), ([, name = '', version]) => ({ name, version })),
    );
    const installed = versions.filter(({ name }) => name in devDependencies);
    expect(installed).toHaveLength(5);
    for (const { name, version } of installed) expect(version, name).toBe(devDependencies[name]);
  });
});

describe('what the page says of the gateway', () => {
  test('has the statuses of the codes', () => {
    const named = Array.from(page.matchAll(/\b(\d{3}) `([a-z]+_[a-z_]+)`/g));
    expect(named.length).toBeGreaterThan(4);
    const rules = new Map(Object.entries(ERRORS));
    for (const [, status, code = ''] of named) expect(String(rules.get(code)?.status), code).toBe(status);
  });

  test('has settings that exist, with their defaults', () => {
    // The generated table names calls, such as `models.list`.
    const [written = ''] = page.split('<!-- comparison -->');
    const named = Array.from(
      written.matchAll(/`((?:retry|stream|cors|upstreams|models|tiers)\.[\w.]+)`(?: \((\w+)\))?/g),
    );
    expect(named.map(([, name]) => name)).toContain('retry.deadline');
    for (const [, name, value] of named) {
      const row = reference.split('\n').find((line) => line.startsWith(`| \`${name}\` |`));
      expect(row, name).toBeDefined();
      if (value !== undefined) expect(row).toContain(`| \`${value}\` |`);
    }
  });

  test('has paths that the gateway answers', async () => {
    const paths = new Set(all(/`(\/v1\/[a-z/]+)`/g));
    expect([...paths]).toContain('/v1/responses');
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    for (const path of paths) {
      const response = await fetch(gateway.url + path, { headers });
      await response.body?.cancel();
      expect([200, 405], path).toContain(response.status);
    }
  });

  test('has the place of the generated table, once', () => {
    const [, between] = /<!-- comparison -->\n([\s\S]*)<!-- \/comparison -->\n$/.exec(page) ?? [];
    expect(between).toBeDefined();
    expect(page.match(/<!-- \/?comparison -->/g)).toHaveLength(2);
  });
});
