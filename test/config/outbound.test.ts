// Which proxy a target gets: by the configuration, by the environment, and by the exceptions from both. Faults of `proxy` and `tls`.
import { describe, expect, test } from 'vitest';
import type { UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { proxyFor } from '../../src/config/source/outbound-rules.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { load, placesOf, withUpstream } from './sample.ts';

const P = 'http://proxy.test:3128';

/** The proxy for this URL by `NO_PROXY`. */
function proxied(except: string, url: string): boolean {
  return proxyFor({ http: P, https: P, except }, new URL(url)) !== undefined;
}

describe('NO_PROXY', () => {
  test.each([
    // [NO_PROXY, target, whether it takes the proxy]
    ['', 'https://example.com', true],
    ['example.com', 'https://example.com', false],
    ['example.com', 'https://EXAMPLE.com', false],
    ['EXAMPLE.COM', 'https://example.com', false],
    ['example.com', 'https://example.com.', false],
    ['example.com.', 'https://example.com', false],
    ['example.com', 'https://api.example.com', false],
    ['example.com', 'https://a.b.example.com', false],
    ['example.com', 'https://notexample.com', true],
    ['example.com', 'https://example.com.evil.test', true],
    ['example.com', 'https://example.co', true],
    ['.example.com', 'https://api.example.com', false],
    ['.example.com', 'https://example.com', true],
    ['.example.com', 'https://notexample.com', true],
    ['*.example.com', 'https://api.example.com', false],
    ['*.example.com', 'https://example.com', true],
    ['*', 'https://example.com', false],
    ['*', 'http://10.0.0.1', false],
    ['other.test,*', 'https://example.com', false],
    ['a.test, example.com ,b.test', 'https://example.com', false],
    ['a.test example.com', 'https://example.com', false],
    [',,', 'https://example.com', true],
    ['com', 'https://example.com', false],
    ['example.com:443', 'https://example.com', false],
    ['example.com:443', 'http://example.com', true],
    ['example.com:80', 'http://example.com', false],
    ['example.com:8443', 'https://example.com', true],
    ['example.com:8443', 'https://api.example.com:8443', false],
    ['.example.com:8443', 'https://api.example.com:8443', false],
    ['*:443', 'https://example.com', true],
    ['10.0.0.1', 'http://10.0.0.1', false],
    ['10.0.0.1', 'http://10.0.0.10', true],
    ['10.0.0.1:8080', 'http://10.0.0.1:8080', false],
    ['10.0.0.1:8080', 'http://10.0.0.1', true],
    ['10.0.0.0/8', 'https://10.200.3.4', false],
    ['10.0.0.0/8', 'https://11.0.0.1', true],
    ['10.0.0.0/8', 'https://10.example.com', true],
    ['10.0.0.0/33', 'https://10.0.0.1', true],
    ['10.0.0.0/', 'https://10.0.0.1', true],
    ['10.0.0.0/x', 'https://10.0.0.1', true],
    ['0.0.0.0/0', 'https://8.8.8.8', false],
    ['2001:db8::1', 'https://[2001:db8::1]', false],
    ['[2001:db8::1]', 'https://[2001:db8::1]', false],
    ['[2001:db8::1]:8443', 'https://[2001:db8::1]:8443', false],
    ['[2001:db8::1]:8443', 'https://[2001:db8::1]', true],
    ['2001:DB8:0:0::1', 'https://[2001:db8::1]', false],
    ['2001:db8::/32', 'https://[2001:db8:1::7]', false],
    ['2001:db8::/32', 'https://[2001:db9::7]', true],
    ['10.0.0.0/8', 'https://[::ffff:10.0.0.1]', false],
    // Never through a proxy that is not an upstream's own.
    ['', 'http://localhost:11434', false],
    ['', 'http://vllm.localhost:8000', false],
    ['', 'http://127.0.0.1:11434', false],
    ['', 'http://127.9.9.9', false],
    ['', 'http://[::1]:8000', false],
    ['', 'http://169.254.169.254/latest', false],
    ['', 'http://[fe80::1]', false],
    ['', 'http://metadata.google.internal', false],
    ['', 'http://localhost.example.com', true],
  ])('%j and %s: proxied is %s', (except, url, expected) => {
    expect(proxied(except, url)).toBe(expected);
  });
});

const upstreamOf = (text: string, env: NodeJS.ProcessEnv = {}): Extract<UpstreamConfig, { kind: 'http' }> => {
  const config = load(text, env).dynamic.upstreams['u'];
  if (config?.kind !== 'http') throw new Error('no such upstream');
  return config;
};

/** The proxy of the upstream `u`, whose base URL this is. */
function proxyOf(url: string, { top = '', own = '', env = {} }): string | undefined {
  const text = `${top}\n${withUpstream(`base_url: ${url}\n${own}`)}`;
  return proxyFor(upstreamOf(text, env).outbound, new URL(url))?.href;
}

describe('the proxy of an upstream', () => {
  const HTTPS = 'https://api.example.com/v1';
  const HTTP = 'http://api.example.com/v1';
  const at = (host: string) => `http://${host}/`;

  test.each<[string, string, { top?: string; own?: string; env?: NodeJS.ProcessEnv }, string | undefined]>([
    ['none without anything', HTTPS, {}, undefined],
    ['HTTPS_PROXY for https', HTTPS, { env: { HTTPS_PROXY: 'http://a:1' } }, at('a:1')],
    ['not HTTPS_PROXY for http', HTTP, { env: { HTTPS_PROXY: 'http://a:1' } }, undefined],
    ['HTTP_PROXY for http', HTTP, { env: { HTTP_PROXY: 'http://a:1' } }, at('a:1')],
    ['not HTTP_PROXY for https', HTTPS, { env: { HTTP_PROXY: 'http://a:1' } }, undefined],
    ['https_proxy', HTTPS, { env: { https_proxy: 'http://a:1' } }, at('a:1')],
    [
      'the lower-case name first',
      HTTPS,
      { env: { https_proxy: 'http://a:1', HTTPS_PROXY: 'http://b:1' } },
      at('a:1'),
    ],
    [
      'the other name where one is empty',
      HTTPS,
      { env: { https_proxy: ' ', HTTPS_PROXY: 'http://b:1' } },
      at('b:1'),
    ],
    ['a value without a scheme', HTTPS, { env: { HTTPS_PROXY: 'proxy.corp:3128' } }, at('proxy.corp:3128')],
    [
      'a login without a scheme',
      HTTPS,
      { env: { HTTPS_PROXY: 'u:p@proxy.corp:3128' } },
      at('u:p@proxy.corp:3128'),
    ],
    [
      'not where NO_PROXY excepts',
      HTTPS,
      { env: { HTTPS_PROXY: 'http://a:1', NO_PROXY: 'example.com' } },
      undefined,
    ],
    [
      'not where no_proxy excepts',
      HTTPS,
      { env: { HTTPS_PROXY: 'http://a:1', no_proxy: 'example.com' } },
      undefined,
    ],
    ['the global one for https', HTTPS, { top: 'proxy: http://g:1' }, at('g:1')],
    ['the global one for http', HTTP, { top: 'proxy: http://g:1' }, at('g:1')],
    [
      'the global one, not the environment’s',
      HTTPS,
      { top: 'proxy: http://g:1', env: { HTTPS_PROXY: 'http://a:1' } },
      at('g:1'),
    ],
    [
      'not the global one where NO_PROXY excepts',
      HTTPS,
      { top: 'proxy: http://g:1', env: { NO_PROXY: '*' } },
      undefined,
    ],
    [
      'none with a global `none`',
      HTTPS,
      { top: 'proxy: none', env: { HTTPS_PROXY: 'http://a:1' } },
      undefined,
    ],
    [
      'none with its own `none`',
      HTTPS,
      { own: 'proxy: none', top: 'proxy: http://g:1', env: { HTTPS_PROXY: 'http://a:1' } },
      undefined,
    ],
    ['its own', HTTPS, { own: 'proxy: http://o:1', top: 'proxy: http://g:1' }, at('o:1')],
    [
      'its own in spite of a global `none`',
      HTTPS,
      { own: 'proxy: http://o:1', top: 'proxy: none' },
      at('o:1'),
    ],
    ['its own in spite of NO_PROXY', HTTPS, { own: 'proxy: http://o:1', env: { NO_PROXY: '*' } }, at('o:1')],
    ['its own for a loopback target', 'http://127.0.0.1:8000/v1', { own: 'proxy: http://o:1' }, at('o:1')],
    [
      'not the global one for a loopback target',
      'http://127.0.0.1:8000/v1',
      { top: 'proxy: http://g:1' },
      undefined,
    ],
    [
      'a bad variable that `none` ignores',
      HTTPS,
      { top: 'proxy: none', env: { HTTPS_PROXY: 'socks5://a:1' } },
      undefined,
    ],
  ])('is %s', (_, url, given, expected) => {
    expect(proxyOf(url, given)).toBe(expected);
  });

  test('adds nothing to a configuration without one', () => {
    const config = load(withUpstream('base_url: https://api.example.com/v1'));
    expect(config.dynamic).not.toHaveProperty('outbound');
    expect(config.dynamic.upstreams['u']).not.toHaveProperty('outbound');
    expect(config.dynamic.upstreams['u']).not.toHaveProperty('tls');
  });

  test('changes the hash of the configuration', () => {
    const text = withUpstream('base_url: https://api.example.com/v1');
    const hashes = [{}, { HTTPS_PROXY: 'http://a:1' }, { HTTPS_PROXY: 'http://a:1', NO_PROXY: 'x' }].map(
      (env) => load(text, env).hash,
    );
    expect(new Set(hashes).size).toBe(3);
  });
});

describe('faults of `proxy`', () => {
  test.each([
    [
      'socks5://proxy:1080',
      /must be a URL that begins with http:\/\/ or https:\/\/ and names a host, or `none`/,
    ],
    ['proxy:3128', /must be a URL/],
    ['None', /must be a URL/],
    ['http://proxy:3128/path', /must end after the host and port/],
    ['http://proxy:3128?x=1', /must end after the host and port/],
    ['http://us%3Aer:p@proxy:3128', /colon in its user/],
    ['http://us%er:p@proxy:3128', /percent-encoded/],
    ['"http://pro xy:3128"', /white space/],
  ])('%s', (value, message) => {
    for (const text of [
      `proxy: ${value}\n${withUpstream('base_url: https://a.test/v1')}`,
      withUpstream(`base_url: https://a.test/v1\nproxy: ${value}`),
    ]) {
      const places = placesOf(text);
      expect(places).toHaveLength(1);
      expect(places[0]).toMatch(message);
      expect(places[0]).not.toMatch(/er:p@/);
    }
  });

  test.each(['HTTPS_PROXY', 'http_proxy'])('in %s name the variable, not its value', (name) => {
    const env = { [name]: 'socks5://user:hidden@proxy:1080' };
    expect(placesOf(withUpstream('base_url: https://a.test/v1'), env)).toEqual([
      `1:1 proxy: the environment variable ${name.toUpperCase()} is not the URL of an HTTP proxy; \`proxy: none\` ignores it`,
    ]);
  });

  test('with a builtin', () => {
    expect(placesOf(withUpstream('builtin: echo\nproxy: none\ntls: { server_name: a.test }'))).toEqual([
      expect.stringContaining('upstreams.u.proxy: has no effect with `builtin`'),
      expect.stringContaining('upstreams.u.tls: has no effect with `builtin`'),
    ]);
  });
});

const quoted = (pem: string) => JSON.stringify(pem);

describe('`tls`', () => {
  const [one, other] = [makeCertificate(), makeCertificate()];
  const base = 'base_url: https://a.test/v1';

  test('of an upstream takes the fields that it leaves out from the global one', () => {
    const top = `tls: { ca: ${quoted(one.cert)}, cert: ${quoted(one.cert)}, key: ${quoted(one.key)} }`;
    const own = `${base}\ntls: { ca: ${quoted(other.cert)}, server_name: b.test }`;
    const { tls, outbound } = upstreamOf(`${top}\n${withUpstream(own)}`);
    expect(tls).toEqual({
      ca: other.cert,
      cert: one.cert,
      key: one.key,
      server_name: 'b.test',
    });
    expect(outbound?.tls?.ca).toBe(one.cert);
  });

  test.each([
    ['cert without key', `cert: ${quoted(one.cert)}`, /needs `cert` and `key` together/],
    ['key without cert', `key: ${quoted(one.key)}`, /needs `cert` and `key` together/],
    [
      'a key of another certificate',
      `cert: ${quoted(one.cert)}, key: ${quoted(other.key)}`,
      /`key` that does not belong to the first certificate/,
    ],
    [
      'half a certificate',
      `ca: ${quoted(one.cert.slice(0, 200))}`,
      /is incomplete: a block in it has no end/,
    ],
    [
      'a bundle whose second half is missing',
      `ca: ${quoted(one.cert + other.cert.slice(0, 120))}`,
      /is incomplete/,
    ],
    [
      'a damaged certificate',
      `ca: ${quoted(one.cert.replace(/\n[A-Za-z0-9+/]{20}/, '\nAAAAAAAAAAAAAAAAAAAA'))}`,
      /cannot be parsed/,
    ],
    [
      'a path',
      'ca: /etc/ssl/ca.pem',
      /must be certificates in PEM form; for the content of a file write \$\{file:PATH\}/,
    ],
    [
      'half a key',
      `cert: ${quoted(one.cert)}, key: ${quoted(one.key.slice(0, 90))}`,
      /key: is incomplete: a block in it has no end/,
    ],
    [
      'certificate and key exchanged',
      `cert: ${quoted(one.key)}, key: ${quoted(one.cert)}`,
      /must be (certificates|a private key)/,
    ],
    ['a server name with a port', 'server_name: "a.test:443"', /must be a host name, without a port/],
    ['an address as server name', 'server_name: 10.0.0.1', /must be a host name/],
    ['an unknown field', 'verify: false', /unknown/i],
  ])('with %s is a fault, without the value', (_, fields, message) => {
    for (const text of [
      withUpstream(`${base}\ntls: { ${fields} }`),
      `tls: { ${fields} }\n${withUpstream(base)}`,
    ]) {
      const places = placesOf(text);
      expect(places.join('\n')).toMatch(message);
      expect(places.join('\n')).not.toMatch(/MII|BEGIN/);
    }
  });

  test('with a certificate that ends soon, or on http, is worth a warning', () => {
    const soon = makeCertificate({ notAfter: new Date(Date.now() + 3_600_000) });
    const past = makeCertificate({ notAfter: new Date(Date.now() - 3_600_000) });
    const warningsOf = (text: string) => load(text).warnings.map(({ message }) => message);
    const tls = ({ cert, key }: typeof soon) => `tls: { cert: ${quoted(cert)}, key: ${quoted(key)} }`;
    expect(warningsOf(withUpstream(`${base}\n${tls(one)}`))).toEqual([
      expect.stringMatching(/cert: expires at/),
    ]);
    expect(warningsOf(withUpstream(`${base}\n${tls(soon)}`))).toEqual([
      expect.stringMatching(/cert: expires at/),
    ]);
    expect(warningsOf(withUpstream(`${base}\n${tls(past)}`))).toEqual([
      expect.stringMatching(/cert: expired at/),
    ]);
    expect(warningsOf(withUpstream(`base_url: http://127.0.0.1/v1\ntls: { server_name: a.test }`))).toEqual([
      expect.stringContaining('has no effect on an http URL'),
    ]);
  });
});
