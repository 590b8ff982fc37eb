"""The words of made text: plain, common and short, one token each in most vocabularies of 30,000 tokens and more.

256 words for the body, so that a byte picks one, and 64 others of four letters for the first words of a text, which
a salt replaces. The lists share no word, so that a salted head can be told from a body. Changing either changes
every made text: then the version in text.py moves.
"""

_BODY = """
about above accept action active add adult advice again agree allow almost alone already also amount animal
annual argue arrive artist aside ask average balance basket beach begin benefit beside between beyond block
board border both bottle branch bread bridge bring broad brown build building business butter camera capital
careful castle catch center century certain chance change cheap check cheese choice choose circle class clear
climb clock cloth cloud coffee collect color company compare concern condition contain continue control corner
cotton count couple course create cross crowd current custom damage dance danger decide degree depend describe
design detail develop different difficult direct discover distance double doubt dress drink drive early earth
effect effort eight electric enemy engine enjoy enough entire equal evening event every except exchange expect
expert express extra factory family famous feature field figure finger finish floor flower follow forest
forget free fresh friend fruit full garden gather general glass grain great green ground grow guide happen
happy heat heavy height holiday honest horse hospital hotel house hundred idea image important include
increase industry inside instead iron island join journey judge jump keep knife know lake large late law lead
leather leave left lesson letter library light line listen little long lower lunch magazine main manner many
market material matter meal meaning measure meeting member mention metal method might milk mind minute model
modern moment month moon mother motion mountain move music narrow nation nature necessary need neither network
never night noise note nothing notice object ocean office often open orange order other outside
"""
BODY: tuple[str, ...] = tuple(_BODY.split())

_LEAD = """
area baby back ball band bank base bell bird blue boat body book born cake call calm camp card care case city
club coal coat cold cook cool copy corn dark deep desk door dust east edge face fact farm fast film fire fish
flat food foot form game gate gift girl goal gold good gray hair half hall hand hard head hill home
"""
LEAD: tuple[str, ...] = tuple(_LEAD.split())
