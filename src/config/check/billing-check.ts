// Checks `billing` against the rest of the file: tier prices, a public URL to return buyers to, the Stripe host. It reads the tree,
// so that an invalid field hides no other fault.
import { httpUrl, isLoopback, isLoopbackHost } from '../schema/addresses.ts';
import { readInteger } from '../schema/units.ts';
import type { ConfigField } from './config-field.ts';

const STRIPE = 'https://api.stripe.com';
const DEFAULT_HOST = '127.0.0.1';
const TEST_KEY = /^(sk|rk)_test_/;
const PAID = ['Lite', 'Pro'] as const;
const STRIPE_FIELDS = ['secret_key', 'webhook_secret', 'api_base'] as const;
const NOT_LOOPBACK = '`test` gives keys to everybody for nothing: it is refused where';

/** @param port override of `listen.port` by the environment */
export function checkBilling(file: ConfigField, port: number | undefined): void {
  const billing = file.at('billing');
  if (billing.node?.kind !== 'branch') return;
  const provider = billing.at('provider').text;
  const url = publicUrl(file, port);
  if (provider === 'stripe') checkStripe(billing, url);
  for (const name of provider === 'test' || provider === 'invoice' ? STRIPE_FIELDS : []) {
    const field = billing.at(name);
    if (field.isGiven) field.key.fault(`has no effect with \`provider: ${provider}\`; remove it`);
  }
  const fault = (message: string) => billing.key.fault(message, 'provider');
  if (provider === 'invoice' && !file.at('branding', 'contact').isGiven)
    fault('`invoice` needs `branding.contact`: buyers ask for the invoice there');
  if (provider === 'test') {
    if (!isLoopbackHost(file.at('listen', 'host').text ?? DEFAULT_HOST))
      fault(`${NOT_LOOPBACK} \`listen.host\` is not a loopback address, such as 127.0.0.1`);
    else if (url !== undefined && !isLoopback(url))
      fault(`${NOT_LOOPBACK} \`public_url\` is not a loopback address`);
  }
  if (provider === 'stripe' || provider === 'invoice' || provider === 'test')
    for (const tier of PAID) checkTier(file, billing, tier, provider === 'stripe');
  if ((billing.at('on_lapse').text ?? 'downgrade') === 'downgrade' && !isOffered(file, 'Free'))
    billing.key.fault('`downgrade` needs the tier `Free` on offer; or take `suspend`', 'on_lapse');
}

function checkStripe(billing: ConfigField, url: URL | undefined): void {
  for (const field of ['secret_key', 'webhook_secret']) {
    const { node } = billing.at(field);
    // An empty one is reported elsewhere.
    if (node === undefined) billing.key.fault('is missing; `provider: stripe` needs it', field);
  }
  const secret = billing.at('secret_key');
  const key = secret.text ?? '';
  const isTest = TEST_KEY.test(key);
  if (/^pk_/.test(key)) secret.fault('is a publishable key; use the secret key');
  const base = billing.at('api_base');
  if (base.url !== undefined && base.url.origin !== STRIPE && !isTest)
    base.fault('is not the host of Stripe, and `secret_key` is not a test key');
  else if (base.url?.protocol === 'http:' && !isLoopback(base.url))
    base.fault('would send the secret key over plain http to another machine');
  if (url === undefined) return;
  const own = isLoopback(url);
  if (url.protocol === 'http:' && !own)
    billing.key.fault('needs a `public_url` with https: the cookie by which a buyer is known goes there');
  if (own && key !== '' && !isTest)
    billing.key.warn('takes real payments, and sends buyers back to a `public_url` of this machine');
}

/** URL to return buyers to; undefined when it is invalid. */
function publicUrl(file: ConfigField, port: number | undefined): URL | undefined {
  const given = file.at('public_url');
  if (given.isGiven) return given.url;
  const listen = file.at('listen');
  const host = listen.at('host').text ?? DEFAULT_HOST;
  const number = port ?? Number(listen.at('port').text ?? '8080');
  return URL.parse(httpUrl(host, number, listen.at('tls').isGiven)) ?? undefined;
}

/** A paid tier needs a price, and with Stripe also the price's name there. */
function checkTier(file: ConfigField, billing: ConfigField, name: string, isStripe: boolean): void {
  if (!isOffered(file, name)) return;
  const tier = file.at('tiers', name);
  const at = tier.node === undefined ? billing : tier;
  const missing = (field: string) =>
    at.key.faultOf(tier.path, `needs a \`${field}\`, as there is \`billing\``);
  if (!tier.at('price').isGiven) missing('price');
  const amount = tier.at('price', 'amount');
  const reading = readInteger(amount.text ?? '');
  if (reading.ok && reading.value === 0) amount.fault('must be at least 1 where there is `billing`');
  if (isStripe && !tier.at('stripe_price').isGiven) missing('stripe_price');
}

/** Without the section all three tiers are offered. */
function isOffered(file: ConfigField, tier: string): boolean {
  const tiers = file.at('tiers');
  return !tiers.isGiven || tiers.node?.kind !== 'branch' || tiers.node.entries.has(tier);
}
