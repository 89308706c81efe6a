local status = obj.status or {}
if status.observedGeneration ~= nil and status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "The operator hasn't observed the last change yet"}
end
local health = {status = "Healthy", message = ""}
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.message}
  elseif condition.type == "Ready" then
    health.message = condition.message
    if condition.status ~= "True" then
      health.status = "Progressing"
    end
  end
end
return health
