// A gateway with operators, and requests to its admin listener as browsers, programs and proxies send them.
import { randomBytes } from 'node:crypto';
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { paidTerms } from '../../src/billing/new-order.ts';
import { loadConfig } from '../../src/config/load-config.ts';
import { AdminConsole } from '../../src/console/admin-console.ts';
import type { DeskOptions } from '../../src/console/console-desk.ts';
import { AdminServer } from '../../src/http/admin/admin-listener.ts';
import { Health } from '../../src/http/admin/health.ts';
import { main } from '../../src/main.ts';
import { openStore } from '../../src/store/open.ts';
import type { Role } from '../../src/store/operator-record.ts';
import type { Store } from '../../src/store/store.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { commandsWith } from '../cli/commands.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';

const PRICE = { amount: 900, currency: 'eur', interval: 'month' } as const;

/** Prices and invoices, for orders. */
export const SALES = {
  tiers: {
    Free: {},
    Lite: { price: PRICE },
    Pro: { price: { ...PRICE, amount: 2900 }, requests_per_minute: 100 },
  },
  billing: { provider: 'invoice' },
  branding: { contact: 'mailto@example.com' },
};

/** @returns the id of a new order that is not paid */
export async function addOrder({ billing }: Store): Promise<string> {
  const buyer = { claim: randomBytes(32), nonce: randomBytes(32), baseTier: 'Free' } as const;
  const terms = paidTerms('Lite', { price: PRICE }, { name: 'none', isLive: true }, buyer, new Date());
  if (terms === undefined) throw new Error('no terms');
  return (await billing.addOrder(terms, null)).order.id;
}

export interface ConsoleCall {
  readonly token?: string;
  readonly cookie?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** Text is sent as a form, anything else as JSON. */
  readonly body?: unknown;
  /** Address that the request comes from. */
  readonly from?: string;
}

export interface ConsoleAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Undefined where the answer is no JSON. */
  readonly json: unknown;
}

/** A program: it sends exactly these headers. */
export function callAdmin(
  url: string,
  method: string,
  path: string,
  call: ConsoleCall = {},
): Promise<ConsoleAnswer> {
  const { token, cookie, headers = {}, body, from } = call;
  const isForm = typeof body === 'string';
  const bytes = body === undefined ? undefined : isForm ? body : JSON.stringify(body);
  const all = {
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
    ...(cookie !== undefined && { cookie }),
    ...(bytes !== undefined && {
      'content-type': isForm ? 'application/x-www-form-urlencoded' : 'application/json',
      'content-length': String(Buffer.byteLength(bytes)),
    }),
    ...Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, typeof value === 'string' ? value : [...value]]),
    ),
  };
  return new Promise((resolve, reject) => {
    const sent = httpRequest(
      new URL(path, url),
      { method, headers: all, agent: false, ...(from !== undefined && { localAddress: from }) },
      async (response) => {
        let text = '';
        for await (const piece of response) text += piece;
        const isJson = /json/.test(response.headers['content-type'] ?? '');
        const { statusCode: status = 0 } = response;
        resolve({ status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined });
      },
    );
    sent.on('error', reject);
    sent.end(bytes);
  });
}

/** The cookie that an answer sets, as a browser sends it back; undefined where it sets none. */
export function cookieFrom({ headers }: ConsoleAnswer): string | undefined {
  return headers['set-cookie']?.[0]?.split(';')[0];
}

/** What identifies the page to the server: the hidden field of its forms. */
export function csrfIn(page: string): string {
  return /<meta name="csrf-token" content="([\w-]+)">/.exec(page)?.[1] ?? '';
}

export class ConsoleSetting implements AsyncDisposable {
  readonly gateway: Gateway;
  readonly commands: ReturnType<typeof commandsWith>;

  constructor(gateway: Gateway) {
    this.gateway = gateway;
    this.commands = commandsWith(() => gateway.configFile, { TEST_DIR: gateway.directory.path });
  }

  call(method: string, path: string, call?: ConsoleCall): Promise<ConsoleAnswer> {
    return callAdmin(this.gateway.adminUrl, method, path, call);
  }

  /** @returns the token of a new operator */
  async operator(name: string, role: Role, ...options: string[]): Promise<string> {
    return (await this.commands.tollgate('operators', 'add', name, '--role', role, ...options)).out.trim();
  }

  /** Signs in as a browser does. @returns the cookie and the CSRF token of the pages */
  async signIn(token: string): Promise<{ cookie: string; csrf: string }> {
    const answer = await this.call('POST', '/console/sign-in', { body: `token=${token}` });
    const cookie = cookieFrom(answer) ?? '';
    const page = await this.call('GET', '/console', { cookie });
    return { cookie, csrf: csrfIn(page.text) };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.gateway[Symbol.asyncDispose]();
  }
}

/**
 * A second admin listener on the configuration and the store of a gateway.
 * @param own what is different: its clock, or how it opens the store
 */
export async function openConsole({ gateway }: ConsoleSetting, own: Partial<DeskOptions>) {
  const env = { TEST_DIR: gateway.directory.path };
  const config = loadConfig(gateway.configFile, env);
  const stores: Store[] = [];
  const { openStore: open = () => openStore(config.static.store), ...others } = own;
  const operators = new AdminConsole({
    config: () => config,
    openStore: async () => {
      const store = await open();
      stores.push(store);
      return store;
    },
    metrics: createMetrics(),
    upstreams: () => [],
    commands: main,
    env,
    logger: createLogger(undefined, 'silent'),
    ...others,
  });
  const health = new Health({ version: '1', configHash: () => 'h', draining: () => false, checks: {} });
  const page = { registry: { contentType: 'text/plain', metrics: async () => '' } };
  const admin = new AdminServer(page, health, { operators });
  const { port } = await admin.listen('127.0.0.1', 0);
  const closeStores = async () => {
    for (const store of stores.splice(0)) await store.close();
  };
  return {
    config,
    closeStores,
    call: (method: string, path: string, call?: ConsoleCall) =>
      callAdmin(`http://127.0.0.1:${port}`, method, path, call),
    async [Symbol.asyncDispose]() {
      await admin.close();
      await closeStores();
    },
  };
}

export async function startConsole(options: GatewayOptions = {}): Promise<ConsoleSetting> {
  return new ConsoleSetting(await startGateway(options));
}
