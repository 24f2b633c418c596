%% Makes a server and a client that trust each other and nobody else, writes the client's side to files, and opens
%% a listener for the server's. FOLDER and PORT are replaced. Run in the node's console.
San = {'Extension', {2,5,29,17}, false, [{dNSName, "localhost"}]},
Kind = [{key, {rsa, 2048, 65537}}, {digest, sha256}],
Chain = fun(More) -> #{root => Kind, intermediates => [], peer => Kind ++ More} end,
#{server_config := Server, client_config := Client} =
  public_key:pkix_test_data(#{server_chain => Chain([{extensions, [San]}]), client_chain => Chain([])}),
Pem = fun(Name, Entries) ->
  Blocks = [{Type, Der, not_encrypted} || {Type, Der} <- Entries],
  ok = file:write_file("FOLDER/" ++ Name, public_key:pem_encode(Blocks))
end,
Pem("ca.pem", [{'Certificate', Der} || Der <- proplists:get_value(cacerts, Client)]),
Pem("cert.pem", [{'Certificate', proplists:get_value(cert, Client)}]),
Pem("key.pem", [proplists:get_value(key, Client)]),
ok = rabbit_networking:start_ssl_listener(
  {"127.0.0.1", PORT, inet}, [{verify, verify_peer}, {fail_if_no_peer_cert, true} | Server], 1).
