// What a start needs beside a valid configuration (the store, its secret, the addresses of the listeners), and why a start has failed.
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { trySecret } from './auth/hashing/hashing-secret.ts';
import { unofferedTiers, unofferedWarnings } from './auth/records/unoffered-tiers.ts';
import { ConfigError, faultReport } from './config/config-fault.ts';
import type { Config } from './config/schema/config-schema.ts';
import { tryStore } from './store/open.ts';
import { storeFault } from './store/store-errors.ts';
import { readLogLevel } from './telemetry/log/logger.ts';
import { outboxDirectory } from './usage/outbox/default-directory.ts';
import { requireCurrency } from './usage/store-currency.ts';

/** Errors whose message is for the operator as it is. */
const EXPLAINED = new Set(['LogLevelError', 'StoreOpenError', 'SecretError', 'CurrencyError']);

/** The operator's message for a failed start; it has a stack only for unexpected errors. */
export function startFault(error: unknown): string {
  if (error instanceof ConfigError) return faultReport(error);
  if (!(error instanceof Error)) return `tollgate: ${String(error)}`;
  const code: unknown = Reflect.get(error, 'code');
  const port: unknown = Reflect.get(error, 'port');
  const address = [Reflect.get(error, 'address'), ...(port === undefined ? [] : [port])]
    .map(String)
    .join(':');
  if (code === 'EADDRINUSE') {
    return `tollgate: ${address} is in use. Set listen.port (or the variable PORT) or admin.port to another port, 0 for a free one.`;
  }
  if (code === 'EADDRNOTAVAIL')
    return `tollgate: ${address} is not an address of this machine. Set listen.host or admin.host.`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return `tollgate: the host name ${String(Reflect.get(error, 'hostname'))} cannot be resolved. Set listen.host or admin.host.`;
  }
  if (code === 'EACCES' && /^(listen|bind)$/.test(String(Reflect.get(error, 'syscall')))) {
    return `tollgate: no permission to listen on ${address}. Set listen.port or admin.port to a port above 1023.`;
  }
  const fault = storeFault(error);
  if (fault !== undefined) return `tollgate: ${fault}`;
  if (error.name === 'WorkersStartError') return error.message;
  if (EXPLAINED.has(error.name)) return `tollgate: ${error.message}`;
  return `tollgate: ${error.stack ?? error.message}`;
}

/**
 * Tries what `serve` would open, and changes nothing. A port that is in use is no fault: the gateway may be running.
 * @returns for each thing that would fail the start, the message of `serve`; and what it would warn of
 */
export async function findStartFaults(
  { static: config, dynamic }: Config,
  env: NodeJS.ProcessEnv,
): Promise<{ readonly faults: readonly string[]; readonly warnings: readonly string[] }> {
  const warnings: string[] = [];
  const trials = [
    async () => void readLogLevel(env),
    async () => {
      const missing = unofferedTiers(dynamic.tiers);
      const { pins, holders } = await tryStore(config.store, { spool: outboxDirectory(config) }, missing);
      await trySecret(config.secret, config.store, pins.secret_check);
      requireCurrency(dynamic.currency, pins.currency);
      warnings.push(...unofferedWarnings(dynamic.tiers, holders));
    },
    () => tryAddress(config.admin),
    () => tryAddress(config.listen),
  ];
  const faults: string[] = [];
  for (const trial of trials) await trial().catch((error: unknown) => faults.push(startFault(error)));
  return { faults, warnings };
}

/** Binds a UDP socket, which needs what a listener needs but takes no connection from the gateway that may be running. */
async function tryAddress({ host, port }: { readonly host: string; readonly port: number }): Promise<void> {
  const { address, family } = await lookup(host);
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4');
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject).bind({ address, port, exclusive: true }, resolve);
    });
  } catch (error) {
    if (!(error instanceof Error) || Reflect.get(error, 'code') !== 'EADDRINUSE') throw error;
  } finally {
    socket.close();
  }
}
