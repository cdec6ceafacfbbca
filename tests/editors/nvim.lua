-- Neovim with `contrib/nvim`, driven by `it/editors.rs`: the commands and keys that a user has, and what the buffer shows.
local linger = require("linger")
linger.setup({ program = vim.env.LINGER_PROGRAM })
local buf

local function lines() return vim.api.nvim_buf_get_lines(buf, 0, -1, false) end
local function has(text)
  return function() return vim.tbl_contains(lines(), text) end
end
local function wait(what, condition)
  if vim.wait(tonumber(vim.env.LINGER_TIMEOUT), condition, 5) then return end
  error(what .. ": not in time\n" .. (buf and table.concat(lines(), "\n") or "no buffer"))
end
local function shown()
  wait("a buffer", function()
    buf = vim.fn.bufnr("^linger://")
    return buf > 0
  end)
end
-- The lines that a replay has too: an old question is not asked again.
local function lasting()
  return vim.tbl_filter(function(line) return not vim.tbl_contains({ "   one", "   three" }, line) and not line:match("^? ") and not line:match("^  [-+@]") end, lines())
end

local function main()
  vim.cmd("edit note.txt")
  local note = vim.api.nvim_get_current_win()
  vim.cmd("LingerNew")
  shown()
  vim.api.nvim_set_current_win(note)
  vim.cmd("2LingerPrompt change this")
  wait("the first words", has("  begun"))
  assert(linger.status() == "running", linger.status())
  local status = vim.json.decode(vim.fn.system({ vim.env.LINGER_PROGRAM, "daemon", "status", "--json" }))
  vim.loop.kill(status.pid, "sigkill")
  -- What the model says is text.
  wait("the other words", has("  I look.^[]0;x^G<U+202E>"))
  wait("the last line", has("  # vim: set shiftwidth=7:"))
  assert(vim.bo[buf].shiftwidth ~= 7 and not vim.bo[buf].modeline)
  wait("a question", function() return linger.status() == "running, 1 waiting" end)
  assert(has("  -old")() and has("  +new")(), table.concat(lines(), "\n"))
  vim.cmd("LingerAnswer allow_once")
  wait("the end of the turn", has("- end_turn"))
  assert(has("  Changed.")() and has("- interrupted")())
  -- Enter jumps to the line that was changed.
  vim.api.nvim_set_current_win(vim.fn.win_findbuf(buf)[1])
  assert(vim.fn.search([[^@ .*note\.txt:2$]]) > 0, table.concat(lines(), "\n"))
  vim.cmd([[execute "normal \<CR>"]])
  assert(vim.fn.expand("%:t") == "note.txt" and vim.fn.line(".") == 2 and vim.fn.getline(".") == "new", vim.fn.getline("."))
  vim.cmd("LingerPrompt stop soon")
  wait("more words", has("  cancel me"))
  vim.cmd("LingerCancel")
  wait("the cancelled turn", has("- cancelled"))
  -- Another look shows the same, nothing twice and nothing less.
  local before, first = lasting(), buf
  vim.cmd("Linger " .. vim.api.nvim_buf_get_name(buf):match("//(.*)$"))
  wait("the same again", function()
    buf = vim.fn.bufnr("^linger://")
    return buf > 0 and buf ~= first and vim.deep_equal(lasting(), before)
  end)
end

local well, problem = xpcall(main, debug.traceback)
vim.fn.writefile({ well and "all is well" or problem }, vim.env.LINGER_OUTPUT)
vim.cmd(well and "qall!" or "cquit!")
