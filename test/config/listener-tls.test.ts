// `listen.tls`: which pairs of certificate and key are accepted, what is wrong with the others, and what is warned of.
import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { reloadableConfig } from '../../src/config/reloadable.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { extended, placesBefore } from './sample.ts';

const DAY = 86_400_000;
const notAfter = new Date(Date.now() + 90 * DAY);
const root = { ...makeCertificate({ subject: 'root', notAfter }), subject: 'root' };
const middle = { ...makeCertificate({ subject: 'middle', issuer: root, notAfter }), subject: 'middle' };
const server = makeCertificate({
  subject: 'server',
  issuer: middle,
  notAfter,
  names: ['api.test', '*.apps.test', '192.0.2.7'],
});
const CHAIN = server.cert + middle.cert;

/** The section with these values, which stand in variables. */
const lines = (more = '') => `listen: { tls: { cert: "\${CERT}", key: "\${KEY}" } }\n${more}`;
const load = (CERT: string, KEY: string, more = '') => extended(lines(more), { CERT, KEY });
const faults = (CERT: string, KEY: string) => placesBefore(lines(), { CERT, KEY });
const warnings = (CERT: string, KEY: string, more = '') =>
  load(CERT, KEY, more)
    .warnings.map(({ message }) => message)
    .filter((message) => message.startsWith('listen.tls'));

const encrypted = (type: 'pkcs8' | 'sec1') =>
  createPrivateKey(server.key)
    .export({ type, format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' })
    .toString();

describe('a pair', () => {
  test.each([
    ['with its chain', CHAIN],
    ['with its chain to the root', CHAIN + root.cert],
    ['without intermediates', server.cert],
    ['with texts between', `# server\n${server.cert}# issuer\n${middle.cert}`],
    ['with CRLF', CHAIN.replaceAll('\n', '\r\n')],
  ])('%s is taken, and makes the default URL https', (_, cert) => {
    const { static: fixed, dynamic } = load(cert, server.key);
    expect(fixed.listen.tls).toBe(true);
    expect(dynamic.certificate?.cert.trim()).toBe(cert.trim());
    expect(dynamic.public_url).toBe('https://127.0.0.1:8080');
    expect(warnings(cert, server.key)).toEqual([]);
  });

  test('of a key of another type is refused', () => {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const rsa = privateKey.export({ type: 'pkcs1', format: 'pem' }).toString();
    expect(faults(CHAIN, rsa)).toEqual([
      expect.stringMatching(/^1:\d+ listen\.tls: has a `key` that does not belong/),
    ]);
  });

  test.each<[string, string, string, RegExp]>([
    [
      'the key of another certificate',
      CHAIN,
      makeCertificate().key,
      /listen\.tls: has a `key` that does not belong to the first certificate/,
    ],
    [
      'the issuer first',
      middle.cert + server.cert,
      server.key,
      /listen\.tls: has the certificate of its `key` not first in `cert`/,
    ],
    [
      'a certificate cut short',
      CHAIN.slice(0, -60),
      server.key,
      /cert: is incomplete: a block in it has no end/,
    ],
    ['a certificate cut in its first block', server.cert.slice(0, 200), server.key, /cert: is incomplete/],
    [
      'a certificate with a broken middle',
      server.cert.replace(/\n.{64}\n/, '\n'),
      server.key,
      /cert: has a certificate that cannot be parsed/,
    ],
    [
      'a path as certificate',
      '/etc/tls/tls.crt',
      server.key,
      /cert: must be certificates in PEM form; for the content of a file write \$\{file:PATH\}/,
    ],
    ['a key as certificate', server.key, server.key, /cert: must be certificates in PEM form/],
    ['a certificate as key', CHAIN, CHAIN, /key: must be a private key in PEM form/],
    ['a key cut short', CHAIN, server.key.slice(0, 120), /key: is incomplete: a block in it has no end/],
    ['an encrypted key', CHAIN, encrypted('pkcs8'), /key: is encrypted with a passphrase/],
    ['an encrypted key in the older form', CHAIN, encrypted('sec1'), /key: is encrypted with a passphrase/],
  ])('with %s is refused with a clear error, without quoting it', (_, cert, key, message) => {
    const found = faults(cert, key);
    expect(found).toEqual([expect.stringMatching(message)]);
    expect(found.join()).not.toMatch(/BEGIN|[A-Za-z0-9+/]{40}/);
  });

  test.each(['cert', 'key'])('without a %s is refused', (field) => {
    const other = field === 'cert' ? 'key' : 'cert';
    const text = `listen: { tls: { ${other}: "\${VALUE}" } }`;
    const VALUE = other === 'cert' ? CHAIN : server.key;
    expect(placesBefore(text, { VALUE })).toEqual([expect.stringContaining(`listen.tls.${field}`)]);
  });
});

describe('a warning', () => {
  const dated = (notBefore: number, notAfter: number) =>
    makeCertificate({
      notBefore: new Date(Date.now() + notBefore),
      notAfter: new Date(Date.now() + notAfter),
    });

  test.each<[string, number, number, RegExp]>([
    ['that has expired', -30 * DAY, -DAY, /certificate that expired at \d{4}-/],
    ['that expires within a week', -DAY, 6 * DAY, /certificate that expires at \d{4}-/],
    ['that is not valid yet', DAY, 90 * DAY, /not valid before \d{4}-.*clocks/],
  ])('is given of a certificate %s, which serves', (_, from, to, message) => {
    const pair = dated(from, to);
    expect(warnings(pair.cert, pair.key)).toEqual([expect.stringMatching(message)]);
  });

  test('is not given of a certificate that is valid for longer', () => {
    const pair = dated(-DAY, 8 * DAY);
    expect(warnings(pair.cert, pair.key)).toEqual([]);
  });

  test('is given of intermediates in the wrong order', () => {
    const found = warnings(server.cert + root.cert + middle.cert, server.key);
    expect(found).toEqual([expect.stringContaining('order them from the server to the root')]);
  });

  test.each<[string, string[]]>([
    ['public_url: https://api.test', []],
    ['public_url: https://one.apps.test:8443/x', []],
    ['public_url: https://192.0.2.7', []],
    ['public_url: "https://[2001:db8::1]:8443"', [expect.stringContaining('no certificate for the host')]],
    [
      'public_url: https://other.test',
      [expect.stringContaining('no certificate for the host of `public_url`')],
    ],
    ['', []],
  ])('is given where the certificate is not for the public host: %s', (more, expected) => {
    expect(warnings(CHAIN, server.key, more)).toEqual(expected);
  });
});

test('the summary names the hosts of the certificate and its end, and nothing secret', () => {
  const text = describeConfig(load(CHAIN, server.key));
  const end = notAfter.toISOString().slice(0, 10);
  expect(text).toContain(`127.0.0.1:8080 with TLS for api.test, *.apps.test, 192.0.2.7 until ${end}`);
  expect(text).not.toContain('BEGIN');
});

describe('a reload', () => {
  const other = makeCertificate();
  const plain = extended('');
  const first = load(CHAIN, server.key);
  const second = load(other.cert, other.key);

  test('brings a new pair without a restart', () => {
    const { config, pending } = reloadableConfig(first, second);
    expect(pending).toEqual([]);
    expect(config.dynamic.certificate?.key.trim()).toBe(other.key.trim());
    expect(config.hash).not.toBe(first.hash);
  });

  test('that removes TLS keeps it, with its pair, until the restart', () => {
    const { config, pending } = reloadableConfig(first, plain);
    expect(pending).toEqual(['listen.tls']);
    expect(config.dynamic.certificate).toEqual(first.dynamic.certificate);
    expect(config.dynamic.public_url).toBe('https://127.0.0.1:8080');
  });

  test('that adds TLS changes nothing until the restart', () => {
    const { config, pending } = reloadableConfig(plain, first);
    expect(pending).toEqual(['listen.tls']);
    expect(config.dynamic.certificate).toBeUndefined();
    expect(config.dynamic.public_url).toBe('http://127.0.0.1:8080');
  });
});
