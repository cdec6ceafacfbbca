// Numbers, times and names, for people. Pure.

export function tokens(count) {
  if (count < 10_000) return String(count);
  if (count < 1_000_000) return `${Math.floor(count / 1000)}k`;
  return `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)}M`;
}
function dollars(micros) {
  if (micros === 0) return '$0';
  return `$${(micros / 1e6).toFixed(micros < 100 ? 6 : micros < 100_000 ? 4 : 2)}`;
}

// What a usage has cost; empty if nothing was used or nothing is known of it.
export function cost(usage) {
  if (!usage || usage.cost_micros === undefined || usage.cost_micros === null) return '';
  return usage.cost_at_least ? `≥ ${dollars(usage.cost_micros)}` : dollars(usage.cost_micros);
}
export function traffic(usage) {
  const cached = usage.cached_tokens ? ` (${tokens(usage.cached_tokens)} cached)` : '';
  return `${tokens(usage.input_tokens ?? 0)} tokens in${cached}, ${tokens(usage.output_tokens ?? 0)} out`;
}
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
}
export function age(at, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - at) / 1000));
  if (seconds < 60) return 'now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}
export const clock = (at) => new Date(at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${Math.round(count / 1000)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

// The last two parts of a path.
export function shortPath(path) {
  const parts = path.split('/').filter(Boolean);
  return parts.length > 2 ? `…/${parts.slice(-2).join('/')}` : path;
}
export const titleOf = (row) => row.name || row.title || 'new session';

// The state of a session, in a word or two, and the class that colours it.
export function stateOf(row) {
  const questions = (row.questions ?? []).length;
  if (row.damaged) return ['damaged', 'bad'];
  if (row.unwritten) return ['stalled', 'bad'];
  if (row.state === 'running') return row.provider_wait ? ['waits for its provider', 'asks'] : ['running', 'busy'];
  if (row.state === 'waiting') return questions ? [`asks (${questions})`, 'asks'] : ['waits for a key', 'asks'];
  if (row.state === 'offered') return ['interrupted', 'asks'];
  if (questions) return [`asks (${questions})`, 'asks'];
  if (!row.stop_reason) return ['idle', ''];
  if (row.stop_reason === 'end_turn') return ['done', 'good'];
  return row.stop_reason === 'cancelled' ? ['cancelled', ''] : [`failed: ${row.stop_reason}`, 'bad'];
}

const allowed = { allow_once: 'allowed once', allow_session: 'allowed in this session', allow_always: 'always allowed' };
export const DECISIONS = { ...allowed, reject_once: 'denied', cancelled: 'cancelled' };
