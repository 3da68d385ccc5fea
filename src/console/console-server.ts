// Answers the requests for the console: operators, their sessions, the pages under /console, and the API under /api/v1. Everything but
// the sign-in needs an operator. It is loaded with the first request: see admin-console.ts.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { GatewayError, isServerFault, wrapError } from '../errors.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { upstreamRecords } from './api/api-records.ts';
import { answerApi, ProblemError } from './api/api-server.ts';
import { readText, send, sendProblem } from './console-answer.ts';
import { type ConsoleDesk, type DeskOptions, openDesk } from './console-desk.ts';
import { ConsoleIdentity, CSRF_FIELD, requireSameSite, sessionCookie } from './console-identity.ts';
import { PageStream, sendErrorPage, sendPage, sendSignIn } from './console-page.ts';
import { LiveFigures } from './live-figures.ts';
import { OperatorSessions } from './operator-sessions.ts';
import { OperatorTokens, operatorEvent } from './operator-tokens.ts';
import { CONSOLE_PAGES, findPage } from './pages/console-pages.ts';
import { backOf } from './pages/form-body.ts';
import { answerChange } from './pages/form-result.ts';
import { sendLive } from './pages/now-page.ts';
import { pageResult, requireSingle } from './pages/page-result.ts';
import { usageCsv } from './pages/report-pages.ts';
import { stateFigures } from './pages/upstream-pages.ts';

/** Some answers wait for the replicas of a fleet; the listener's own timeout is shorter. In milliseconds. */
const ANSWER_MS = 30_000;
const MAX_FORM_BYTES = 64 * 1024;

interface Opened {
  readonly desk: ConsoleDesk;
  readonly tokens: OperatorTokens;
  readonly sessions: OperatorSessions;
  readonly identity: ConsoleIdentity;
  readonly figures: LiveFigures;
}

export interface ConsoleOptions extends DeskOptions {
  readonly logger: Logger;
}

export class ConsoleServer {
  readonly #options: DeskOptions;
  readonly #logger: Logger;
  #opened: Promise<Opened> | undefined;
  /** Whether somebody can sign in; it stays so in this process. */
  #hasOperators = false;

  constructor(options: ConsoleOptions) {
    this.#options = options;
    this.#logger = options.logger;
  }

  /** Never rejects. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.socket.setTimeout(ANSWER_MS);
    const isApi = request.url?.startsWith('/api/') === true;
    try {
      const url = new URL(request.url ?? '/', 'http://console.invalid');
      const opened = await this.#open();
      await this.#requireOperators(opened);
      if (isApi) await answerApi(opened, request, response, url);
      else await this.#page(opened, request, response, url);
    } catch (cause) {
      const error = wrapError(cause, 'internal_error');
      if (isServerFault(error.status))
        this.#logger.error({ err: cause, path: request.url?.split('?')[0] }, 'the console failed to answer');
      if (isApi) sendProblem(response, error, error instanceof ProblemError ? error.more : {});
      else if (error.code === 'operator_required' || error.code === 'invalid_operator')
        sendSignIn(response, pageOf(request), reasonToSignIn(error, request));
      else sendErrorPage(response, error);
    }
  }

  #open(): Promise<Opened> {
    this.#opened ??= this.#openNow().catch((error: unknown) => {
      this.#opened = undefined;
      throw wrapError(error, 'store_unavailable');
    });
    return this.#opened;
  }

  async #openNow(): Promise<Opened> {
    const { metrics, metricsText = () => metrics.registry.metrics() } = this.#options;
    const desk = await openDesk(this.#options);
    const tokens = new OperatorTokens(desk, desk.now);
    const sessions = new OperatorSessions(desk.store.operators, desk.now);
    const { admin } = desk.config().static;
    const identity = new ConsoleIdentity({ admin, secret: desk.secret, tokens, sessions });
    const figures = new LiveFigures({
      metrics: metricsText,
      now: desk.now,
      currency: () => desk.config().dynamic.currency,
      states: async () => stateFigures(await upstreamRecords(desk)),
    });
    return { desk, tokens, sessions, identity, figures };
  }

  async #requireOperators({ desk }: Opened): Promise<void> {
    if (this.#hasOperators || desk.config().static.admin.sso !== undefined) return;
    if ((await desk.store.operators.listOperators(1)).length === 0) throw new GatewayError('no_operators');
    this.#hasOperators = true;
  }

  async #page(opened: Opened, request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
    const { pathname } = url;
    if (pathname === '/console/sign-in' || pathname === '/console/sign-out') {
      if (request.method !== 'POST') return redirect(response, '/console');
      requireSameSite(request);
      const form = await readForm(request);
      if (pathname === '/console/sign-in') return await this.#signIn(opened, request, response, form);
      return await signOut(opened, request, response, form);
    }
    const operator = await opened.identity.operatorOf(request);
    const { desk, figures, identity } = opened;
    // Also of an error: the session has this secret now.
    if (operator.setCookie !== undefined) response.setHeader('set-cookie', operator.setCookie);
    const caller = {
      operator,
      request,
      url,
      desk,
      figures,
      id: '',
      address: identity.addressOf(request),
    };
    const frame = { operator, pages: CONSOLE_PAGES };
    if (request.method === 'POST' && pathname.startsWith('/console/do/')) {
      const form = await readForm(request);
      identity.requireOwnPage(request, operator, form.get(CSRF_FIELD) ?? '');
      return await answerChange(caller, pathname.slice('/console/do/'.length), form, (own) => {
        return new PageStream(response, { ...frame, ...own });
      });
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('allow', 'GET, HEAD');
      throw new GatewayError('method_not_allowed');
    }
    if (pathname === '/console/live') return sendLive(caller, response);
    if (pathname === '/console/usage.csv') {
      requireSingle(caller.url);
      return send(response, 200, await usageCsv(caller), { 'content-type': 'text/csv; charset=utf-8' });
    }
    const found = findPage(pathname);
    if (found === undefined) throw new GatewayError('unknown_url');
    // What an operator may see, an error included, is in the frame of the console.
    const result = await pageResult(found.page, { ...caller, id: found.id });
    sendPage(response, result.status, { ...frame, ...result });
  }

  async #signIn(
    { desk, tokens, sessions, identity }: Opened,
    request: IncomingMessage,
    response: ServerResponse,
    form: URLSearchParams,
  ): Promise<void> {
    const address = identity.addressOf(request);
    const { operators } = desk.store;
    let operator: Awaited<ReturnType<OperatorTokens['verify']>>;
    try {
      operator = await tokens.verify((form.get('token') ?? '').trim(), address);
    } catch (error) {
      if (error instanceof GatewayError && !isServerFault(error.status))
        return sendSignIn(response, backOf(form), error);
      throw error;
    }
    const now = desk.now();
    const by = { actor: `operator:${operator.name}`, reason: null, at: new Date(now).toISOString() };
    const event = operatorEvent('session.begin', operator.name, by, {});
    await operators.addEvent({ ...event, address });
    const secret = await sessions.begin(operator, address);
    redirect(response, backOf(form), sessionCookie(request, secret));
  }
}

/** The page that a request asked for; *Now* where it asked for none. */
function pageOf({ url = '' }: IncomingMessage): string {
  const [path = ''] = url.split('?');
  return findPage(path) === undefined ? '/console' : path;
}

/** Who opens a page is asked for a token; who sends a form has to know that it was in vain. */
function reasonToSignIn(error: GatewayError, { method }: IncomingMessage): GatewayError | undefined {
  if (error.code === 'invalid_operator') return error;
  if (method === 'GET' || method === 'HEAD') return undefined;
  return new GatewayError(
    'operator_required',
    'Your session has ended, and nothing was changed. Sign in again.',
  );
}

async function signOut(
  { sessions, identity }: Opened,
  request: IncomingMessage,
  response: ServerResponse,
  form: URLSearchParams,
): Promise<void> {
  const operator = await identity.operatorOf(request);
  identity.requireOwnPage(request, operator, form.get(CSRF_FIELD) ?? '');
  if (operator.session !== undefined) await sessions.end(operator.session);
  redirect(response, '/console', sessionCookie(request, ''));
}

async function readForm(request: IncomingMessage): Promise<URLSearchParams> {
  const type = request.headers['content-type']?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/x-www-form-urlencoded')
    throw new GatewayError('unsupported_content_type', 'Send a form.');
  return new URLSearchParams(await readText(request, MAX_FORM_BYTES));
}

function redirect(response: ServerResponse, location: string, cookie?: string): void {
  send(response, 303, '', { location, 'set-cookie': cookie });
}
