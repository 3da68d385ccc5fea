// Checks `billing` against the rest of the file: tier prices, a public URL to return buyers to, the Stripe host. It reads the tree,
// so that an invalid field hides no other fault.
import { httpUrl, isLoopback, isLoopbackHost } from '../schema/addresses.ts';
import { readInteger } from '../schema/units.ts';
import { findNode, isGiven, nodeText, type ReportFault, type YamlMapping } from '../source/yaml-tree.ts';

const STRIPE = 'https://api.stripe.com';
const DEFAULT_HOST = '127.0.0.1';
const TEST_KEY = /^(sk|rk)_test_/;
const PAID = ['Lite', 'Pro'] as const;
const STRIPE_FIELDS = ['secret_key', 'webhook_secret', 'api_base'] as const;

/** @param port override of `listen.port` by the environment */
export function checkBilling(
  tree: YamlMapping,
  port: number | undefined,
  fault: ReportFault,
  warn: ReportFault,
): void {
  const section = tree.entries.get('billing');
  if (section === undefined || section.value.kind !== 'branch') return;
  const at = section.key.start;
  const provider = nodeText(section.value, 'provider');
  const url = publicUrl(tree, port);
  if (provider === 'stripe') checkStripe(section.value, at, url, fault, warn);
  for (const field of provider === 'test' || provider === 'invoice' ? STRIPE_FIELDS : []) {
    const entry = section.value.entries.get(field);
    if (entry !== undefined && isGiven(entry.value))
      fault(entry.key.start, ['billing', field], `has no effect with \`provider: ${provider}\`; remove it`);
  }
  if (provider === 'invoice' && !isGiven(findNode(tree, ['branding', 'contact'])?.node))
    fault(
      at,
      ['billing', 'provider'],
      '`invoice` needs `branding.contact`: buyers ask for the invoice there',
    );
  if (provider === 'test') {
    const host = nodeText(tree, 'listen', 'host') ?? DEFAULT_HOST;
    if (!isLoopbackHost(host)) {
      fault(
        at,
        ['billing', 'provider'],
        '`test` gives keys to everybody for nothing: it is refused where `listen.host` is not a loopback address, such as 127.0.0.1',
      );
    } else if (url !== undefined && !isLoopback(url)) {
      fault(
        at,
        ['billing', 'provider'],
        '`test` gives keys to everybody for nothing: it is refused where `public_url` is not a loopback address',
      );
    }
  }
  if (provider === 'stripe' || provider === 'invoice' || provider === 'test')
    checkPrices(tree, at, provider, fault);
  if ((nodeText(section.value, 'on_lapse') ?? 'downgrade') === 'downgrade' && !isOffered(tree, 'Free')) {
    fault(at, ['billing', 'on_lapse'], '`downgrade` needs the tier `Free` on offer; or take `suspend`');
  }
}

function checkStripe(
  section: YamlMapping,
  at: number,
  url: URL | undefined,
  fault: ReportFault,
  warn: ReportFault,
): void {
  for (const field of ['secret_key', 'webhook_secret']) {
    const node = section.entries.get(field)?.value;
    // An empty string is reported elsewhere.
    if (node === undefined || node.kind === 'blank')
      fault(at, ['billing', field], 'is missing; `provider: stripe` needs it');
  }
  const key = nodeText(section, 'secret_key') ?? '';
  const keyAt = section.entries.get('secret_key')?.value.span.start ?? at;
  const isTest = TEST_KEY.test(key);
  if (/^pk_/.test(key)) fault(keyAt, ['billing', 'secret_key'], 'is a publishable key; use the secret key');
  const base = findNode(section, ['api_base'])?.node;
  const host = nodeText(base);
  if (base !== undefined && host !== undefined && URL.canParse(host)) {
    const path = ['billing', 'api_base'];
    const there = new URL(host);
    if (there.origin !== STRIPE && !isTest)
      fault(base.span.start, path, 'is not the host of Stripe, and `secret_key` is not a test key');
    else if (there.protocol === 'http:' && !isLoopback(there))
      fault(base.span.start, path, 'would send the secret key over plain http to another machine');
  }
  if (url === undefined) return;
  const own = isLoopback(url);
  if (url.protocol === 'http:' && !own) {
    fault(
      at,
      ['billing'],
      'needs a `public_url` with https: the cookie by which a buyer is known goes there',
    );
  }
  if (own && key !== '' && !isTest)
    warn(at, ['billing'], 'takes real payments, and sends buyers back to a `public_url` of this machine');
}

/** URL to return buyers to; undefined when it is invalid. */
function publicUrl(tree: YamlMapping, port: number | undefined): URL | undefined {
  const entry = tree.entries.get('public_url');
  const text =
    entry !== undefined && isGiven(entry.value)
      ? nodeText(tree, 'public_url')
      : httpUrl(
          nodeText(tree, 'listen', 'host') ?? DEFAULT_HOST,
          port ?? Number(nodeText(tree, 'listen', 'port') ?? '8080'),
          isGiven(findNode(tree, ['listen', 'tls'])?.node),
        );
  return text !== undefined && URL.canParse(text) ? new URL(text) : undefined;
}

/** A paid tier needs a price, and with Stripe also the price's name there. */
function checkPrices(
  tree: YamlMapping,
  at: number,
  provider: 'stripe' | 'invoice' | 'test',
  fault: ReportFault,
): void {
  for (const tier of PAID) {
    if (!isOffered(tree, tier)) continue;
    const entry = findNode(tree, ['tiers', tier]);
    const place = entry?.key?.start ?? at;
    const price = findNode(tree, ['tiers', tier, 'price'])?.node;
    const path = ['tiers', tier];
    if (!isGiven(price)) fault(place, path, 'needs a `price`, as there is `billing`');
    const amount = findNode(tree, ['tiers', tier, 'price', 'amount'])?.node;
    const reading = readInteger(nodeText(amount) ?? '');
    if (amount !== undefined && reading.ok && reading.value === 0)
      fault(amount.span.start, [...path, 'price', 'amount'], 'must be at least 1 where there is `billing`');
    if (provider === 'stripe' && !isGiven(findNode(tree, [...path, 'stripe_price'])?.node))
      fault(place, path, 'needs a `stripe_price`, as there is `billing`');
  }
}

/** Without the section all three tiers are offered. */
function isOffered(tree: YamlMapping, tier: string): boolean {
  const tiers = tree.entries.get('tiers')?.value;
  if (!isGiven(tiers)) return true;
  return tiers.kind !== 'branch' || tiers.entries.has(tier);
}
