-- The limits of one holder in Redis, each operation in one atomic step and by the clock of Redis. Which limit has refused,
-- and what clients read of it, is told by the process from the figures that this gives back (verdict.ts).
--
-- KEYS  1  hash, the window of a minute: s when it began (ms), r requests, t tokens
--       2  hash, totals: d day, r requests of it, m month, t tokens of it, e epoch, k whether they are known (1) or
--          provisional (0). What was reserved in another epoch is not in t.
--       3  sorted set, leases by the time when they expire (ms); a member is ID:WINDOW:TOKENS:EPOCH
-- ARGV  1  length of a window, 2 of a lease (ms), 3 the operation:
--       reserve ID TOKENS RPM TPM RPD TPM_MONTH CONCURRENCY [KNOWN REQUESTS TOKENS]   -1: no such limit
--       peek    likewise; reserves nothing
--       settle  MEMBER|ID|'' TOKENS REQUESTS AGAIN   ID: the lease of a request that got no answer; '': use without a
--               lease, of a request that goes on where REQUESTS is 0; AGAIN 1: nothing is counted where there is no such lease (any more)
--       renew   MEMBER …
local DAY = 86400000
local windowMs, leaseMs, operation = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- Lua would write large numbers with an exponent.
local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])

if operation == 'renew' then
  local renewed = 0
  for index = 4, #ARGV do
    renewed = renewed + redis.call('ZADD', KEYS[3], 'XX', 'CH', text(now + leaseMs), ARGV[index])
  end
  if redis.call('PTTL', KEYS[3]) < leaseMs * 2 then redis.call('PEXPIRE', KEYS[3], leaseMs * 2) end
  return renewed
end

-- The civil date of a day since 1970, by eras of 400 years that begin in March.
local day = math.floor(now / DAY)
local shifted = day + 719468
local era = math.floor(shifted / 146097)
local dayOfEra = shifted - era * 146097
local yearOfEra = math.floor(
  (dayOfEra - math.floor(dayOfEra / 1460) + math.floor(dayOfEra / 36524) - math.floor(dayOfEra / 146096)) / 365
)
local dayOfYear = dayOfEra - (365 * yearOfEra + math.floor(yearOfEra / 4) - math.floor(yearOfEra / 100))
local march = math.floor((5 * dayOfYear + 2) / 153)
local dayOfMonth = dayOfYear - math.floor((153 * march + 2) / 5) + 1
-- Years times 12 plus months, which run on from March, being 2.
local month = (yearOfEra + era * 400) * 12 + march + 2

-- A field that is missing or is no count is 0. Nothing that has been counted is as large as that.
local function count(value)
  local number = tonumber(value or '')
  if number == nil or number ~= number or number < 0 or number > 1e17 then return 0 end
  return number
end

local held = redis.call('HMGET', KEYS[1], 's', 'r', 't')
local window = { start = count(held[1]), requests = count(held[2]), tokens = count(held[3]) }

local function keepWindow()
  redis.call('HSET', KEYS[1], 's', text(window.start), 'r', text(window.requests), 't', text(window.tokens))
  -- It ends by what stands in it; this is only so that nothing stays for ever.
  redis.call('PEXPIRE', KEYS[1], windowMs)
end

-- The clock was set back. The window must not last for longer than a window.
if window.start > now then
  window.start = now
  keepWindow()
end
if now - window.start >= windowMs then window = { start = 0, requests = 0, tokens = 0 } end

held = redis.call('HMGET', KEYS[2], 'd', 'r', 'm', 't', 'e', 'k')
local totals
local heldDay, heldMonth = tonumber(held[1] or ''), tonumber(held[3] or '')
if heldDay and heldMonth and heldDay <= day and heldMonth <= month then
  totals = {
    day = heldDay,
    requests = count(held[2]),
    month = heldMonth,
    tokens = count(held[4]),
    epoch = held[5] or '0',
    known = held[6] == '1',
  }
  if totals.day < day then
    totals.day, totals.requests = day, 0
  end
  if totals.month < month then
    totals.month, totals.tokens, totals.epoch = month, 0, text(micros)
  end
end

-- At least the rest of the month and one day more.
local monthMs = (33 - dayOfMonth) * DAY

local function keepTotals()
  redis.call(
    'HSET', KEYS[2], 'd', text(totals.day), 'r', text(totals.requests), 'm', text(totals.month),
    't', text(totals.tokens), 'e', totals.epoch, 'k', totals.known and '1' or '0'
  )
  redis.call('PEXPIRE', KEYS[2], monthMs)
end

-- Takes back what a lease has reserved, and puts other tokens there.
local function replace(member, tokens, isHeld)
  local begun, reserved, epoch = string.match(member, '^[^:]*:(%d+):(%d+):(%d+)$')
  local held = isHeld and count(reserved) or 0
  if window.start > 0 and begun == text(window.start) then
    window.tokens = math.max(0, window.tokens - held + tokens)
    keepWindow()
  end
  if totals then
    if epoch ~= totals.epoch then held = 0 end
    totals.tokens = math.max(0, totals.tokens - held + tokens)
  end
end

if operation == 'settle' then
  local member, tokens, requests, again = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
  if member ~= '' and not string.find(member, ':', 1, true) then
    for _, each in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
      if string.sub(each, 1, #member + 1) == member .. ':' then member = each end
    end
  end
  local isHeld = member ~= '' and redis.call('ZREM', KEYS[3], member) == 1
  if again and not isHeld then return 0 end
  if member == '' and requests == 0 then
    if window.start == 0 then window.start = now end
    window.tokens = window.tokens + tokens
    keepWindow()
  end
  replace(member, tokens, isHeld)
  if totals then
    totals.requests = math.max(0, totals.requests + requests)
    keepTotals()
  end
  return 1
end

-- Leases whose process is gone. Those that would last for longer than a lease were made before the clock was set back.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', text(now), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[3], member)
  replace(member, 0, true)
  if totals then keepTotals() end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. text(now + leaseMs), '+inf', 'LIMIT', 0, 100)) do
  redis.call('ZADD', KEYS[3], text(now + leaseMs), member)
end
local running = redis.call('ZCOUNT', KEYS[3], '(' .. text(now), '+inf')

local id, tokens = ARGV[4], tonumber(ARGV[5])
local perMinute, tokensPerMinute = tonumber(ARGV[6]), tonumber(ARGV[7])
local perDay, tokensPerMonth, concurrency = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

-- Totals that the process has read: they are taken where none are known. What was counted provisionally may not have
-- reached the store that they are from.
if ARGV[11] and (not totals or (not totals.known and ARGV[11] == '1')) then
  totals = totals or { day = day, requests = 0, month = month, tokens = 0 }
  totals.requests = math.max(totals.requests, tonumber(ARGV[12]))
  totals.tokens = math.max(totals.tokens, tonumber(ARGV[13]))
  totals.epoch, totals.known = text(micros), ARGV[11] == '1'
  keepTotals()
end
if not totals and (perDay >= 0 or tokensPerMonth >= 0) then return {} end

local function within(value, limit)
  return limit < 0 or value <= limit
end

local member, verdict = '', 0
if
  operation == 'reserve'
  and within(window.requests + 1, perMinute)
  and within(window.tokens + tokens, tokensPerMinute)
  and within(totals and totals.requests + 1 or 0, perDay)
  and within(totals and totals.tokens + tokens or 0, tokensPerMonth)
  and within(running + 1, concurrency)
then
  verdict = 1
  if window.start == 0 then window.start = now end
  window.requests, window.tokens = window.requests + 1, window.tokens + tokens
  keepWindow()
  if totals then
    totals.requests, totals.tokens = totals.requests + 1, totals.tokens + tokens
    keepTotals()
  end
  member = id .. ':' .. text(window.start) .. ':' .. text(tokens) .. ':' .. (totals and totals.epoch or '0')
  redis.call('ZADD', KEYS[3], text(now + leaseMs), member)
  -- As long as there are totals, what an expired lease holds of them is still to be taken back.
  redis.call('PEXPIRE', KEYS[3], math.max(leaseMs * 2, totals and monthMs or 0))
  running = running + 1
end

return {
  verdict,
  now,
  window.start > 0 and window.start + windowMs - now or 0,
  window.requests,
  -- As texts: clients do not read the largest integers exactly.
  text(window.tokens),
  totals and totals.requests or 0,
  text(totals and totals.tokens or 0),
  running,
  (not totals or totals.known) and 1 or 0,
  member,
}
