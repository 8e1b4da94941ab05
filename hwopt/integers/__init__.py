"""Systems of integer variables and relations: one declaration for search, proof, sampling, enumeration and counting."""
