// The list of servers that the comparison knows. A new server is one line here.
import type { ComparedServer } from '../types.ts';
import { aimock } from './aimock.ts';
import { llama } from './llama.ts';
import { scripted } from './scripted.ts';

export const SERVERS: readonly ComparedServer[] = [aimock, scripted, llama];
