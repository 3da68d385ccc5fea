// What the tests do inside a web page: calls of the gateway by `fetch` and by the official SDK as it runs in browsers. It is
// bundled with the SDK into one script; nothing here may use Node.
import OpenAI from 'openai';

/** How a page saw the answer to one request; `thrown` when the browser gave it none. */
export interface Seen {
  readonly status?: number;
  /** Only those that the browser lets the page read. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly thrown?: string;
}

export interface Ask {
  readonly url: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface Access {
  readonly baseURL: string;
  readonly apiKey: string;
}

/** Told all of the text so far, whenever there is more of it. */
type OnText = (text: string) => Promise<void>;

async function ask({ url, ...init }: Ask): Promise<Seen> {
  try {
    const response = await fetch(url, init);
    const headers = Object.fromEntries(response.headers);
    return { status: response.status, headers, body: await response.text() };
  } catch (error) {
    return { thrown: nameOf(error) };
  }
}

/** Reads the answer piece by piece, as a page without an SDK would. */
async function read({ url, ...init }: Ask, onText: OnText): Promise<Seen> {
  let body = '';
  try {
    const response = await fetch(url, init);
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read()) {
      body += piece.value;
      await onText(body);
    }
    return { status: response.status, body };
  } catch (error) {
    return { body, thrown: nameOf(error) };
  }
}

function client(access: Access): OpenAI {
  return new OpenAI({ ...access, dangerouslyAllowBrowser: true });
}

async function models(access: Access): Promise<string[]> {
  const ids: string[] = [];
  for await (const model of client(access).models.list()) ids.push(model.id);
  return ids;
}

async function complete(access: Access, model: string, prompt: string): Promise<OpenAI.ChatCompletion> {
  return await client(access).chat.completions.create({
    model,
    messages: [{ role: 'user', content: prompt }],
  });
}

interface Streamed {
  readonly text: string;
  readonly finish: string | null;
  readonly tokens: number | null;
}

/** @param onText may say that it is enough, by giving `false` */
async function stream(
  access: Access,
  model: string,
  prompt: string,
  onText: (text: string) => Promise<unknown>,
): Promise<Streamed> {
  const answer = await client(access).chat.completions.create({
    model,
    messages: [{ role: 'user', content: prompt }],
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = '';
  let finish: string | null = null;
  let tokens: number | null = null;
  for await (const chunk of answer) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    tokens = chunk.usage?.total_tokens ?? tokens;
    if (text !== '' && (await onText(text)) === false) answer.controller.abort();
  }
  return { text, finish, tokens };
}

/** What a failed call of the SDK was. */
interface Fault {
  readonly name: string;
  readonly status: number | undefined;
  readonly code: string | null | undefined;
  readonly requestId: string | null | undefined;
  readonly retryAfter: string | null | undefined;
}

async function fault(access: Access, model: string): Promise<Fault> {
  const sdk = new OpenAI({ ...access, dangerouslyAllowBrowser: true, maxRetries: 0 });
  try {
    await sdk.chat.completions.create({ model, messages: [{ role: 'user', content: 'Say hello' }] });
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    const { status, code, requestID: requestId } = error;
    return {
      name: nameOf(error),
      status,
      code,
      requestId,
      retryAfter: error.headers?.get('retry-after'),
    };
  }
  throw new Error('it did not fail');
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.constructor.name : String(error);
}

const inPage = { ask, read, models, complete, stream, fault };

export type InPage = typeof inPage;

Object.assign(globalThis, { inPage });
