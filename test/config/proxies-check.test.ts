// Warnings about networks in `listen.trusted_proxies` that are wider than load balancers are.
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { checkedConfig, variablesOf } from '../shipping/checked-config.ts';
import { extended } from './sample.ts';

const warningsOf = (...networks: readonly string[]): readonly string[] =>
  extended(`listen: { trusted_proxies: [${networks.map((each) => JSON.stringify(each)).join(', ')}] }`)
    .warnings.filter(({ message }) => message.startsWith('listen.trusted_proxies'))
    .map(({ message }) => message);

describe('a trusted network', () => {
  test.each([
    '10.0.3.10',
    '10.0.0.0/16',
    '172.16.0.0/28',
    '0.0.0.0/16',
    '0.0.0.0/32',
    '0.0.0.0',
    '127.0.0.0/8',
    '::1',
    '2001:db8::/48',
    'fd00::/64',
    '::ffff:10.0.0.0/112',
    '::ffff:127.0.0.0/104',
  ])('%s is narrow enough', (network) => {
    expect(warningsOf(network)).toEqual([]);
  });

  test.each([
    ['10.0.0.0/15', 'wide'],
    ['10.0.0.0/8', 'wide'],
    ['0.0.0.0/1', 'wide'],
    ['127.0.0.0/7', 'wide'],
    ['2001:db8::/47', 'wide'],
    ['fd00::/8', 'wide'],
    ['::/1', 'wide'],
    ['::ffff:10.0.0.0/104', 'wide'],
    ['0.0.0.0/0', 'EVERYBODY'],
    ['10.0.0.0/0', 'EVERYBODY'],
    ['::/0', 'EVERYBODY'],
    ['::ffff:0.0.0.0/96', 'EVERYBODY'],
  ])('%s is warned about: %s', (network, word) => {
    const [only = '', ...others] = warningsOf('10.0.3.10', network);
    expect(others).toEqual([]);
    expect(only).toMatch(/^listen\.trusted_proxies\[1\]: .*name the addresses of your proxies$/);
    expect(only).toContain(word);
  });
});

describe('the examples', () => {
  const folder = new URL('../../examples/', import.meta.url);
  const files = readdirSync(folder).filter((name) => name.endsWith('.yaml') && name !== 'compose.yaml');

  test.each([...files, 'compose/config.yaml'])('%s trusts no wide network', async (name) => {
    const text = readFileSync(new URL(name, folder), 'utf8');
    const names = variablesOf(text).filter((each) => !text.includes(`\${${each}:-`));
    const urls = names
      .filter((each) => /^AZURE_.*_URL$/.test(each))
      .map((each) => [each, 'https://a.example']);
    const { warnings } = await checkedConfig(text, names, Object.fromEntries(urls));
    expect(warnings.filter(({ message }) => message.startsWith('listen'))).toEqual([]);
  });
});
