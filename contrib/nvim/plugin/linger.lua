-- The commands of linger; `require("linger")` is loaded at the first.
local function command(name, opts, run)
  vim.api.nvim_create_user_command(name, function(args) run(require("linger"), args) end, opts)
end

command("Linger", { nargs = "?", desc = "attach to a session, or the latest one here" }, function(m, a) m.open(a.args) end)
command("LingerNew", { nargs = "?", desc = "start a session here, with a model" }, function(m, a) m.new(a.args) end)
command("LingerPrompt", { nargs = "*", range = true, desc = "prompt, with the lines of the range" }, function(m, a)
  m.prompt(a.args, a.range > 0 and { a.line1, a.line2 } or nil)
end)
command("LingerAnswer", { nargs = "*", desc = "answer the oldest question: NAME and a reason" }, function(m, a)
  m.answer(a.fargs[1], table.concat(a.fargs, " ", 2))
end)
command("LingerCancel", { desc = "cancel the running turn" }, function(m) m.cancel() end)
