// The AI SDK as an application sets it up for the gateway, and reading its streams to the end.
import { createOpenAICompatible, type OpenAICompatibleProviderSettings } from '@ai-sdk/openai-compatible';
import type { LanguageModel, TextStreamPart, ToolSet } from 'ai';
import type { Setting } from './setting.ts';

export type ProviderSettings = Partial<OpenAICompatibleProviderSettings>;

/** A model as an application makes it: in nothing but base URL and key does it know of the gateway. */
export function modelOf(setting: Setting, name: string, settings: ProviderSettings = {}): LanguageModel {
  const { baseURL, key } = setting;
  return createOpenAICompatible({ name: 'tollgate', baseURL, apiKey: key, ...settings })(name);
}

export interface Collected {
  readonly text: string;
  readonly types: readonly string[];
  /** What came as `error` parts. */
  readonly errors: readonly unknown[];
  /** What the stream itself threw in the end. */
  readonly thrown: unknown;
}

/**
 * Reads a stream until it ends or throws.
 * @param onText called with all of the text so far
 */
export async function collect<T extends ToolSet>(
  stream: AsyncIterable<TextStreamPart<T>>,
  onText?: (text: string) => void,
): Promise<Collected> {
  const types: string[] = [];
  const errors: unknown[] = [];
  let text = '';
  let thrown: unknown;
  try {
    for await (const part of stream) {
      types.push(part.type);
      if (part.type === 'error') errors.push(part.error);
      if (part.type === 'text-delta') {
        text += part.text;
        onText?.(text);
      }
    }
  } catch (error) {
    thrown = error;
  }
  return { text, types, errors, thrown };
}
