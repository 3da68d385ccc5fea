// The examples on the page of a new key: each one is executed unchanged against a gateway.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { javaScriptLines, pythonLines } from '../../src/billing/pages/key-page.ts';
import { keyOnPage, orderByForm } from '../e2e/holder.ts';
import { startGateway } from '../helpers/gateway.ts';
import { readPage } from './markup.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const NAMES = ['echo', 'it\'s `$(id)` "quoted" \\ \\n', '</script><b>&amp;</b>', 'ünï/cödé:1'];

/** The text of one of the boxes. */
function box(page: string, name: string): string {
  const { elements, faults } = readPage(page);
  expect(faults).toEqual([]);
  return elements.find(({ attributes }) => attributes.get('id') === `${name}-text`)?.text ?? '';
}

test.each(NAMES)('the JavaScript example runs with any model name: %s', async (name) => {
  await using gateway = await startGateway({
    config: { models: { [name]: { targets: [{ upstream: 'echo', model: 'echo' }] } } },
  });
  const page = (await orderByForm(gateway.url, { tier: 'Free' })).text();
  const lines = box(page, 'javascript');
  expect(lines).toContain(keyOnPage(page));
  expect(lines).toContain(`${gateway.url}/v1`);
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', lines], {
    cwd: ROOT,
  });
  expect(stdout).toContain('Hello');
});

test.each(NAMES)('the Python example has the name as a string: %s', (model) => {
  const lines = pythonLines({ base: 'https://llm.example.com/v1', key: '0'.repeat(32), model });
  const literal = /^ {4}model=(".*"),$/m.exec(lines)?.[1] ?? '';
  // JSON's escapes are Python's as well.
  expect(JSON.parse(literal)).toBe(model);
  expect(lines.split('\n').length).toBe(11);
  expect(javaScriptLines({ base: 'x', key: 'y', model }).split('\n').length).toBe(11);
});

describe('a tier without an exact model name', () => {
  const models = { 'vendor/*': { targets: [{ upstream: 'echo', model: 'echo' }] } };

  test('gets a placeholder and the form of its names', async () => {
    await using gateway = await startGateway({ config: { models } });
    const page = (await orderByForm(gateway.url, { tier: 'Free' })).text();
    expect(box(page, 'python')).toContain('model="MODEL"');
    expect(page).toContain('in place of');
    expect(page).toContain('vendor/*');
  });

  test('or the message that it has no models', async () => {
    await using gateway = await startGateway({
      config: { models: { large: { targets: [{ upstream: 'echo', model: 'echo' }], tiers: ['Pro'] } } },
    });
    const page = (await orderByForm(gateway.url, { tier: 'Free' })).text();
    expect(page).toContain('At the moment this tier has none.');
    expect(page).not.toContain('large');
  });
});
