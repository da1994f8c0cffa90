insert into stream.operator_action (who, action, target, parameters, result, reason)
values (%(who)s, %(action)s, %(target)s, %(parameters)s, %(result)s, %(reason)s)
