// `tollgate check`: validates a configuration, summarizes it, and tries what a start would open; with `--credentials` it also fetches
// the token of each upstream with `auth` once, and compares the Stripe account with the file.
import type { Writable } from 'node:stream';
import { checkStripeAccount } from '../billing/stripe/account-check.ts';
import { StripeCalls } from '../billing/stripe/stripe-calls.ts';
import { isLiveKey } from '../billing/stripe/stripe-provider.ts';
import { describeConfig } from '../config/check/summary.ts';
import { loadConfig } from '../config/load-config.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { formatDuration } from '../config/schema/units.ts';
import { findStartFaults } from '../start-fault.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';
import { Outbound } from '../upstream/outbound/outbound.ts';
import { createTokenSource } from '../upstream/tokens/create-source.ts';
import { fetchInTime } from '../upstream/tokens/renewed-token.ts';
import { outboxDirectory, outboxFault } from '../usage/outbox/default-directory.ts';
import { CONFIG, command, flag } from './program/command.ts';
import { write } from './program/terminal.ts';

/** Exits with 0 when the gateway would start with the file. */
export const CHECK = command('check', 'validate a configuration and summarize it', {
  detail:
    'Shows what the configuration means, and warns of what is probably a mistake. It also tries what `serve` would open (the store, its secret, ' +
    'the addresses of the listeners), and changes none of it: it exits with 0 exactly where `serve` would start, except for a port in use.',
  options: {
    credentials: flag('also fetch the tokens of upstreams with `auth`, and compare the Stripe account'),
    offline: flag('read only the file, and the files that it names', ['credentials']),
    config: CONFIG,
  },
  examples: ['check', 'check --config gateway.yaml --credentials', 'check --offline'],
  run: async ({ config: file, credentials, offline }, io) => {
    const config = loadConfig(file, io.env);
    await write(io.stdout, `${describeConfig(config)}\n`);
    const { faults, warnings } = offline
      ? { faults: [], warnings: [] }
      : await findStartFaults(config, io.env);
    for (const text of warnings) await write(io.stderr, `warning: ${text}\n`);
    if (faults.length > 0) await write(io.stderr, `serve would not start:\n${faults.join('\n')}\n`);
    const spool = outboxDirectory(config.static);
    const why = offline || faults.length > 0 ? undefined : await outboxFault(spool);
    const warning = `warning: usage.spool: ${why}; usage would be in memory only until the store has it\n`;
    if (why !== undefined) await write(io.stderr, warning);
    const tried = credentials ? await tryCredentials(file, io.env, io) : 0;
    return faults.length > 0 ? 1 : tried;
  },
});

/**
 * @param file a valid configuration
 * @returns the exit code: 1 when a token could not be fetched, or the Stripe account does not agree with the file
 */
export async function tryCredentials(
  file: string,
  env: NodeJS.ProcessEnv,
  { stdout, stderr }: { readonly stdout: Writable; readonly stderr: Writable },
): Promise<number> {
  const { dynamic } = loadConfig(file, env);
  const payments = await tryPayments(dynamic, { stdout, stderr });
  const tried = await Promise.all(
    Object.entries(dynamic.upstreams).flatMap(([name, upstream]) => {
      if (upstream.kind === 'builtin' || upstream.auth === undefined || upstream.enabled === false) return [];
      const { auth } = upstream;
      return [
        fetchInTime(createTokenSource(auth, new Outbound(upstream.outbound))).then(
          ({ expiresAt }) => {
            const left = formatDuration(Math.max(1000, Math.round((expiresAt - Date.now()) / 1000) * 1000));
            stdout.write(`upstream ${name}: got a token by ${auth.kind}, which expires in ${left}\n`);
            return true;
          },
          (error: unknown) => {
            const why = error instanceof Error ? error.message : String(error);
            stderr.write(`upstream ${name}: got no token by ${auth.kind}: ${why}\n`);
            return false;
          },
        ),
      ];
    }),
  );
  if (tried.length === 0 && payments === undefined)
    stdout.write('no upstream has `auth`, so there is no token to fetch\n');
  return tried.every(Boolean) && payments !== false ? 0 : 1;
}

/** Compares the Stripe account with the configuration. @returns whether it agrees; undefined without Stripe */
async function tryPayments(
  config: DynamicConfig,
  { stdout, stderr }: { readonly stdout: Writable; readonly stderr: Writable },
): Promise<boolean | undefined> {
  const { secret_key, api_base, provider } = config.billing ?? {};
  if (provider !== 'stripe' || secret_key === undefined) return undefined;
  const outbound = new Outbound(config.outbound);
  const calls = new StripeCalls({ secret_key, api_base, outbound }, createMetrics());
  try {
    const findings = await checkStripeAccount(config, calls, isLiveKey(secret_key));
    for (const { isFault, text } of findings) (isFault ? stderr : stdout).write(`billing: ${text}\n`);
    return !findings.some(({ isFault }) => isFault);
  } finally {
    calls.close();
  }
}
